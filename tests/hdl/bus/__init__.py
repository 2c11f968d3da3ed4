"""Tests of the buses."""
