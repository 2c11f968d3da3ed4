"""NIC around the INCEPTIONN codec: selection of packets, and their headers, lengths and checksums."""
