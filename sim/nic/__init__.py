"""Nodes at Linux interfaces, in RTL or as their NumPy twins (docs/reference/nic.md)."""
