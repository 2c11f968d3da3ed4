"""Boards in simulation: routed netlists in Verilator, what is around them, and checks of the netlist."""
