"""Ethernet for small boards: RGMII, GMII, and a MAC between them and packet streams."""
