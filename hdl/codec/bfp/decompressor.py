"""Block floating point decompressor."""

from __future__ import annotations

from fanin.codec.facts import EXPONENT_BITS, Bfp
from fanin.hdl.codec.bfp.format import BfpFormat
from fanin.hdl.codec.blocks.decompressor import BlockDecompressor
from fanin.hdl.codec.blocks.shapes import Words


class BfpDecompressor(BlockDecompressor):
    """Decompressor of frames of blocks to binary32 values.

    An output frame has exactly ``length`` bytes. ``error``, valid with ``last``, reports that the compressed
    frame ended before the codes of its last word. In blocks of several words, codes after ``length`` are not
    required. Further data of a compressed frame are dropped.

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
    ``latency`` cycles from a word to the last word of values that it completes, if the length is present, and
    the same from the length: 6, or 7 if a word's exponents are not whole bytes. One word of values a cycle.
    Between two frames at most one cycle is lost; each surplus word takes one more.

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
