"""AXI4, AXI4-Lite, register files declared once, memory models."""
