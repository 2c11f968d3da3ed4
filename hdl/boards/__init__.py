"""Boards: everything between a node and the pins of an FPGA card."""
