"""The reliable link: frames between two neighbours, each exactly once and in order."""
