"""Checksum of a header whose words arrive one after the other."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.control.headers import WIDTH

HALF = WIDTH // 2
LATENCY = 4
_MAX_WORDS = 8  # words of the longest header
_SUM_BITS = HALF + (_MAX_WORDS - 1).bit_length()


class HeaderSum(wiring.Component):
    """Ones' complement sum of the 16-bit halves of up to eight words.

    The sum is valid in any byte order: for words in wire order its inverse is the checksum in wire order.

    Members
    -------
    ``word`` : In, 32
        Word of the header.
    ``low`` : In, 1
        Add the low half of ``word`` in this cycle.
    ``high`` : In, 1
        Add the high half of ``word`` in this cycle.
    ``clear`` : In, 1
        Set the sum to 0; overrides ``low`` and ``high``.
    ``o`` : Out, 16
        Sum of all halves since ``clear``.

    Parameters
    ----------
    None.

    Latency
    -------
    4 cycles from the last word to ``o``; one word a cycle.

    Source
    ------
    RFC 1071.
    """

    def __init__(self) -> None:
        super().__init__({"word": In(WIDTH), "low": In(1), "high": In(1), "clear": In(1), "o": Out(HALF)})

    def elaborate(self, platform: Any) -> Module:
        """Keep the carries above the sums and add them back at the end."""
        m = Module()
        sums = [Signal(_SUM_BITS, name=name) for name in ("low_sum", "high_sum")]
        halves = self.word[:HALF], self.word[HALF:]
        for total, half, counts in zip(sums, halves, (self.low, self.high), strict=True):
            with m.If(self.clear):
                m.d.sync += total.eq(0)
            with m.Elif(counts):
                m.d.sync += total.eq(total + half)
        total_sum = Signal(_SUM_BITS + 1)
        folded = Signal(HALF + 1)
        m.d.sync += [
            total_sum.eq(sums[0] + sums[1]),
            folded.eq(total_sum[:HALF] + total_sum[HALF:]),
            self.o.eq(folded[:HALF] + folded[HALF]),
        ]
        return m
