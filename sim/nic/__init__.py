"""Nodes at Linux interfaces, in RTL or as their NumPy models (docs/reference/nic.md)."""
