"""fanin beside the papers: benchmarks, and the papers' claims with a measurement for each."""
