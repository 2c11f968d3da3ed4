"""Switches in simulation, behind one interface."""
