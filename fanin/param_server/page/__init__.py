"""The page of a training with the parameter server."""
