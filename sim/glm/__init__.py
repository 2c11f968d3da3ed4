"""GLM training on simulated nodes."""
