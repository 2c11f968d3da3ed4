"""Compressor of OCP Microscaling formats."""

from __future__ import annotations

from fanin.codec.facts import Mx
from fanin.codec.formats import Element, Rounding
from fanin.hdl.codec.blocks.compressor import BlockCompressor
from fanin.hdl.codec.blocks.shapes import Words
from fanin.hdl.codec.mx.format import MxFormat


class MxCompressor(BlockCompressor):
    """Compressor of frames of binary32 values to MX blocks.

    A frame has at least one byte. Missing bytes of its last value are zeros; missing values of its last block
    are +0. The output equals ``encode`` of ``fanin/codec/golden/mx.py``.

    Members
    -------
    ``i`` : In, packet stream of ``width``
        Frames. ``ready`` depends combinationally on ``o.ready``, except with blocks of several words.
    ``o`` : Out, packet stream of ``width``
        Compressed frames.
    With stochastic rounding, ``seed`` : In, 32
        Seed of the random bits, taken with the first word after a reset: not 0, which yields only zeros. The
        sequence continues from frame to frame.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 256 or 512. Default 512.
    ``element`` : Element
        Format of an element: ``e4m3``, ``e5m2``, ``e3m2``, ``e2m3``, ``e2m1`` or ``int8``. Default ``e4m3``.
    ``block`` : int
        Values that share a scale: 16, 32 or 64. Default 32, as MX has it.
    ``rounding`` : Rounding
        ``Rounding.NEAREST``, ties to even, or ``Rounding.STOCHASTIC``. Default nearest.

    Latency
    -------
    ``latency`` cycles from a word to the word that its piece completes: 10 for blocks of up to a word, 11 + S
    for blocks of S > 1 words. One word a cycle. At a frame's end each missing word of a block of several words
    takes a cycle. One more cycle is lost if the last piece fills a word and leaves bytes.

    Source
    ------
    OCP Microscaling formats v1.0; docs/systems/codec.md.
    """

    def __init__(
        self,
        *,
        width: int = 512,
        element: Element = Element.E4M3,
        block: int = 32,
        rounding: Rounding = Rounding.NEAREST,
    ):
        self.width = width
        self.element = element
        self.block = block
        self.rounding = rounding
        super().__init__(words=Words(width, MxFormat(Mx(element, block, rounding))))
