"""Compressor of values to 16 bits."""

from __future__ import annotations

from fanin.codec.facts import Codec
from fanin.codec.formats import Rounding
from fanin.hdl.codec.blocks.compressor import BlockCompressor
from fanin.hdl.codec.blocks.shapes import Words
from fanin.hdl.codec.half.format import HalfFormat, half_config


class HalfCompressor(BlockCompressor):
    """Compressor of frames of binary32 values to bfloat16 or binary16.

    A frame has at least one byte. Missing bytes of its last value are zeros. The output equals ``encode`` of
    ``fanin/codec/golden/half.py``.

    Members
    -------
    ``i`` : In, packet stream of ``width``
        Frames. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, packet stream of ``width``
        Compressed frames.
    With stochastic rounding, ``seed`` : In, 32
        Seed of the random bits, taken with the first word after a reset: not 0, which yields only zeros. The
        sequence continues from frame to frame.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 256 or 512. Default 512.
    ``codec`` : Codec
        ``bf16`` or ``fp16``. Default ``bf16``.
    ``rounding`` : Rounding
        ``Rounding.NEAREST``, ties to even, or ``Rounding.STOCHASTIC``. Default nearest.

    Latency
    -------
    ``latency``, 6 cycles from a word to the word that it completes. One word a cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, width: int = 512, codec: Codec = Codec.BF16, rounding: Rounding = Rounding.NEAREST):
        self.width = width
        self.codec = codec
        self.rounding = rounding
        super().__init__(words=Words(width, HalfFormat(half_config(codec, rounding))))
