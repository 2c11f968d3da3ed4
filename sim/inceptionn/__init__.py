"""INCEPTIONN as published: hosts exchange gradients over sockets, with the codec in their NICs."""
