"""The codecs in Verilator, and what they do to gradients and trainings."""
