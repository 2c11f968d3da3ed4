"""One-sided writes: facts, golden model, drivers."""
