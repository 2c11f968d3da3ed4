"""Simulations: switches, networks, the co-simulation of nodes, and the model checker."""
