"""INCEPTIONN as published: the exchange in the hosts, over sockets, with the codec in their NICs."""
