"""``provenance.json``: what a folder's results came from, so that ``fanin rerun`` computes them again."""
