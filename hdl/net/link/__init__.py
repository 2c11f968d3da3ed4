"""Reliable link: delivers frames between two neighbours, each exactly once and in order."""
