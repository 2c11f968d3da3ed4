"""Parts that all runs share: options, folder, progress and provenance."""
