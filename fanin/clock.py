"""The reference clock."""

CLOCK_MHZ = 250.0  # of the nodes, unless said otherwise
