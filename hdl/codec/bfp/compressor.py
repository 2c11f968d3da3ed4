"""Block floating point compressor."""

from __future__ import annotations

from fanin.codec.facts import EXPONENT_BITS, Bfp
from fanin.hdl.codec.bfp.format import BfpFormat
from fanin.hdl.codec.blocks.compressor import BlockCompressor
from fanin.hdl.codec.blocks.shapes import Words


class BfpCompressor(BlockCompressor):
    """Compressor of frames of binary32 values to blocks that share an exponent.

    A frame has at least one byte. Missing bytes of its last value are zeros; missing values of its last block
    are +0. The output equals ``encode`` of ``fanin/codec/golden/bfp.py``.

    Members
    -------
    ``i`` : In, packet stream of ``width``
        Frames. ``ready`` depends combinationally on ``o.ready``, except with blocks of several words.
    ``o`` : Out, packet stream of ``width``
        Compressed frames.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 256 or 512. Default 512.
    ``block`` : int
        Values that share an exponent: 4, 8, 16, 32 or 64. Default 16.
    ``mantissa`` : int
        Bits of a magnitude, 3 to 15. Default 7.
    ``exponent`` : int
        Bits of an exponent, 1 to 8. Default 8.
    ``offset`` : int
        Powers of two by which the exponent range is lowered, 0 to 31; 0 with 8 bits. Default 0.

    Latency
    -------
    ``latency`` cycles from a word to the word that its piece completes: 10, or 8 for blocks of 4 values, or
    11 + S for blocks of S > 1 words; one more if a word's exponents are not whole bytes. One word a cycle. At a
    frame's end each missing word of a block of several words takes a cycle. One more cycle is lost if the last
    piece fills a word and leaves bytes.

    Source
    ------
    AI Smart NIC, section IV-B; docs/systems/codec.md.
    """

    def __init__(
        self,
        *,
        width: int = 512,
        block: int = 16,
        mantissa: int = 7,
        exponent: int = EXPONENT_BITS,
        offset: int = 0,
    ):
        self.width = width
        self.block = block
        self.mantissa = mantissa
        self.exponent = exponent
        self.offset = offset
        super().__init__(words=Words(width, BfpFormat(Bfp(block, mantissa, exponent, offset))))
