"""Training loops and cost models: what a codec or a NIC changes for a whole training."""
