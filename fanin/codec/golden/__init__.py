"""The gradient codecs in NumPy, bit for bit as the hardware (docs/systems/codec.md)."""
