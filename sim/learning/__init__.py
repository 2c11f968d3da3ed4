"""Networks, data and measures of learning that several systems use, in NumPy or PyTorch."""
