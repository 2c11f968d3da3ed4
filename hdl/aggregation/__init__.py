"""Frames of the aggregation protocol, and its reliable transport."""
