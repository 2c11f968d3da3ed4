"""CNNs on clusters of FPGAs (NADA): facts, golden model, driver, training, pages."""
