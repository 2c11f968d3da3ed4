"""Codecs in Verilator, and their effects on gradients and trainings."""
