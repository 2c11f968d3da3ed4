"""The NIC around the INCEPTIONN codec: which packets, their headers, lengths and checksums."""
