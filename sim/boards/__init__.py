"""Boards, real ones and their netlists: training on them, and the netlist in Verilator."""
