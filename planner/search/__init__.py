"""The search for a placement."""
