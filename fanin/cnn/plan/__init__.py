"""``fanin plan``: its options, the search, and what is written of it."""
