"""Surroundings of a component in Amaranth's simulator: memories and stream monitors."""
