"""Simulation of training CNNs: clusters of nodes, single layers, and arrays of operators."""
