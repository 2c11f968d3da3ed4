"""Gradient codecs in NumPy, bit for bit as in hardware (docs/systems/codec.md)."""
