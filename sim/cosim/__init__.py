"""Co-simulation of nodes in Verilator, links and a switch, under cocotb."""
