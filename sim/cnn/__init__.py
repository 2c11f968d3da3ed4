"""Simulation of CNNs that train: layers on their own, arrays with a body in C."""
