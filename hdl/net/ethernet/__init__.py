"""Ethernet for small boards: RGMII, GMII, and a MAC between GMII and packet streams."""
