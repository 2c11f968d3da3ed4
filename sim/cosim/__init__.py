"""Nodes in Verilator, links and a switch, executed together under cocotb."""
