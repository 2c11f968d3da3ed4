"""GLM training, bit for bit as the hardware: quantised features, memory layout, training, its measures."""
