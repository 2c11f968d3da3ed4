"""The ring all-reduce, bit for bit: its arithmetic, and its link."""
