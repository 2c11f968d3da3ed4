"""The ring all-reduce: on simulated nodes, and its time models."""
