"""A node as a package for somebody else's top level: descriptions of its Verilog that other tools read."""
