"""The ring all-reduce, bit for bit."""
