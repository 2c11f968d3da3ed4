"""The verifier of a plan; it shares nothing with the search."""
