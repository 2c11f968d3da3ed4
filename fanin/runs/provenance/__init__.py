"""``provenance.json``: origin of a folder's results, from which ``fanin rerun`` computes them again."""
