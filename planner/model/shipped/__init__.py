"""Models that are shipped, in the model language."""
