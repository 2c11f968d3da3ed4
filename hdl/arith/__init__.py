"""Arithmetic: adder trees, bit-serial multipliers, binary32 operators and functions."""
