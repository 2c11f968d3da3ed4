"""Decompressor of OCP Microscaling formats."""

from __future__ import annotations

from fanin.codec.facts import Mx
from fanin.codec.formats import Element
from fanin.hdl.codec.blocks.decompressor import BlockDecompressor
from fanin.hdl.codec.blocks.shapes import Words
from fanin.hdl.codec.mx.format import MxFormat


class MxDecompressor(BlockDecompressor):
    """Decompressor of frames of MX blocks to binary32 values.

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
    ``element`` : Element
        Format of an element: ``e4m3``, ``e5m2``, ``e3m2``, ``e2m3``, ``e2m1`` or ``int8``. Default ``e4m3``.
    ``block`` : int
        Values that share a scale: 16, 32 or 64. Default 32, as MX has it.

    Latency
    -------
    ``latency``, 6 cycles from a word to the last word of values that it completes, if the length is present,
    and the same from the length. One word of values a cycle. Between two frames at most one cycle is lost; each
    surplus word takes one more.

    Source
    ------
    OCP Microscaling formats v1.0; docs/systems/codec.md.
    """

    def __init__(self, *, width: int = 512, element: Element = Element.E4M3, block: int = 32):
        self.width = width
        self.element = element
        self.block = block
        super().__init__(words=Words(width, MxFormat(Mx(element, block))))
