"""Streams: the packet payload, typed connection, buffers, converters, arbiters, protocol monitors."""
