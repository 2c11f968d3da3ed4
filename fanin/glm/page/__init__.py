"""The page of a GLM training."""
