"""Networking parts shared by several systems: header layouts, checksums, CRCs, tags, ping, a MAC hub."""
