"""The flow of words through a build: whether it can stop, and when what happens (docs/systems/cluster.md)."""
