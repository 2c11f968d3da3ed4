"""Cost of spreading a simulation over ranks: measured points, and a model of them (docs/scale.md)."""
