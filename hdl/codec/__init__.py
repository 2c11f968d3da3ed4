"""Gradient codecs: INCEPTIONN, block floating point, and the NIC stages around them (docs/systems/codec.md)."""
