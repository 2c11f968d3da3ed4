"""The ring all-reduce engine: reliable link, sequencer, adders, node (docs/systems/ring.md)."""
