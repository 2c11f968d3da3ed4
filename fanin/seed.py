"""Seeds, of splits, shuffles, times and faults."""

MAX_SEED = (1 << 32) - 1  # what scikit-learn takes
