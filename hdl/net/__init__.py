"""Framing that several systems share: header layouts, checksums, CRCs."""
