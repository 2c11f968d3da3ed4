"""Decompressor of values of 16 bits."""

from __future__ import annotations

from fanin.codec.facts import Codec
from fanin.hdl.codec.blocks.decompressor import BlockDecompressor
from fanin.hdl.codec.blocks.shapes import Words
from fanin.hdl.codec.half.format import HalfFormat, half_config


class HalfDecompressor(BlockDecompressor):
    """Decompressor of frames of bfloat16 or binary16 to binary32 values.

    An output frame has exactly ``length`` bytes. ``error``, valid with ``last``, reports that the compressed
    frame ended before the last value. Further data of a compressed frame are dropped.

    Members
    -------
    ``length`` : In, stream of 32 bits
        Decompressed bytes of the next frame, at least 1.
    ``i`` : In, packet stream of ``width``
        Compressed frames. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, packet stream of ``width`` with ``error``
        Decompressed frames.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 256 or 512. Default 512.
    ``codec`` : Codec
        ``bf16`` or ``fp16``. Default ``bf16``.

    Latency
    -------
    ``latency`` cycles from a word to the last word of values that it completes, if the length is present, and
    the same from the length: 4 with ``bf16``, 6 with ``fp16``. One word of values a cycle. Between two frames
    at most one cycle is lost; each surplus word takes one more.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, width: int = 512, codec: Codec = Codec.BF16):
        self.width = width
        self.codec = codec
        super().__init__(words=Words(width, HalfFormat(half_config(codec))))
