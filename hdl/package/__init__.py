"""Packages of nodes for use in other designs: descriptions of a node's Verilog that other tools read."""
