"""Gradient codecs (INCEPTIONN, BFP): parameters, golden models, and operations on files of values."""

from fanin.codec.facts import Bfp, Inceptionn

__all__ = ["Bfp", "Inceptionn"]
