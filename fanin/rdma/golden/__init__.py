"""One-sided writes, bit for bit as in hardware: the NIC, and a node with it."""
