"""Evaluation: benchmarks, models of the papers' machines, and measurements of the papers' claims."""
