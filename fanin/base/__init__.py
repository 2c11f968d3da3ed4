"""Shared base: errors, files of others, the cache, processes. Nothing here depends on a system."""
