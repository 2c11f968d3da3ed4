"""Codecs of blocks of values: parts shared by block floating point, MX and the 16-bit formats."""
