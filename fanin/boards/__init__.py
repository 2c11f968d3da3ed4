"""FPGA boards: their resources, estimates of fit, and builds of nodes."""
