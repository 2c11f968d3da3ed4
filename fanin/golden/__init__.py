"""Golden NumPy models, written from the paper."""
