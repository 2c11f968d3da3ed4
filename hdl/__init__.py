"""RTL of fanin, in Amaranth, and its emission as Verilog."""
