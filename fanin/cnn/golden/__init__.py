"""Bit-exact golden models of CNN training: layers, networks and functions."""
