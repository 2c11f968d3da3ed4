"""Search for a placement."""
