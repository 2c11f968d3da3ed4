"""FPGA boards: what each has, what fits it, and how a node's build for one is made."""
