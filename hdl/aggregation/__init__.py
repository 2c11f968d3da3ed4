"""Framing and the reliable aggregation transport."""
