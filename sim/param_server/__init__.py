"""Parameter server: on simulated nodes, and as an event model."""
