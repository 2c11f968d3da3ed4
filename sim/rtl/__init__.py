"""What stands around a component in Amaranth's simulator: memories, stream monitors."""
