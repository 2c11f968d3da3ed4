"""What spreading a simulation over ranks costs: measured points, and a model of them (docs/scale.md)."""
