"""The page of a CNN that a cluster has trained: how it learnt, what its layers did, what it was."""
