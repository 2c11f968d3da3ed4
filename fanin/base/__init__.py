"""What every part stands on: errors, files of others, the cache, processes. Nothing here knows of a system."""
