"""Buses: AXI4, AXI4-Lite, register maps and files, memories on a bus."""
