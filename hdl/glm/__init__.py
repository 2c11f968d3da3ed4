"""GLM worker of P4SGD: bank, engine, worker, node."""
