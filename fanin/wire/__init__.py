"""Headers and fields of all protocols, a file per protocol."""
