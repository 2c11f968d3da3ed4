"""Gradient codecs (INCEPTIONN, BFP): parameters, and what is done with files of values."""

from fanin.codec.facts import Bfp, Inceptionn

__all__ = ["Bfp", "Inceptionn"]
