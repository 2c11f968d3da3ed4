"""Ring all-reduce engine: sequencer, data paths, adders, node (docs/systems/ring.md)."""
