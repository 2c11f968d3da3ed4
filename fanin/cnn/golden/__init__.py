"""Golden models of CNN training, bit for bit: layers, networks, and the functions that they need."""
