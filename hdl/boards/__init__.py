"""Boards: what stands between a node and the pins of an FPGA card."""
