"""``fanin codec``: encodes, decodes and measures files of values."""
