"""Ring all-reduce on simulated nodes, and models of its time."""
