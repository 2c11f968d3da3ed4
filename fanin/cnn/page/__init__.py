"""HTML page and timeline of a CNN that a cluster has trained."""
