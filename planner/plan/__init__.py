"""Plans: single ones, sweeps over cluster sizes, and their files."""
