"""Plans: one, several for growing clusters, and what is written of them."""
