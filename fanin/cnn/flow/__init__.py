"""Flow model of words through a build: deadlock and timing (docs/systems/cluster.md)."""
