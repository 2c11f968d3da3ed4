"""HTML page of a plan."""
