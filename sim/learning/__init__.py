"""Networks, data and measures of learning that several systems train with, in NumPy or PyTorch."""
