"""Gradient codecs: parameters, golden models, and operations on files of values."""

from fanin.codec.facts import Bf16, Bfp, Fp16, Inceptionn, Mx
from fanin.codec.formats import Element, Rounding

__all__ = ["Bf16", "Bfp", "Element", "Fp16", "Inceptionn", "Mx", "Rounding"]
