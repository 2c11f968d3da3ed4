"""Boards in simulation: routed netlists in Verilator, their surroundings, and checks of the netlist."""
