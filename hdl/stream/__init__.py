"""Streams: packet payload, typed connection, buffers, forks, joins, width converters, credits, an arbiter."""
