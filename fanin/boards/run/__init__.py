"""Builds for boards: ``fanin board build`` and its folder."""
