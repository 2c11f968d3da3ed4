"""Training with INCEPTIONN: facts, and the driver of its NIC."""
