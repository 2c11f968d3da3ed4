"""One-sided writes, bit for bit as the hardware: the NIC, and a node of it."""
