"""The report of a run: one HTML file with its charts inside, for a browser in light or dark."""
