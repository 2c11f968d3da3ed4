"""Tests of the stream cores."""
