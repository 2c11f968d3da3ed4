"""GLM training, bit for bit as in hardware: quantised features, memory layout, trainers, metrics."""
