"""GLM training (P4SGD): facts, golden model, driver, training, pages."""
