"""The checksum of a header whose words come one after the other."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.control.headers import WIDTH

HALF = WIDTH // 2
LATENCY = 4
_MOST = 8
_SUM_BITS = HALF + (_MOST - 1).bit_length()


class HeaderSum(wiring.Component):
    """Ones' complement sum of the 16-bit halves of up to eight words.

    It holds in any byte order: of words as they come, it is the checksum as it is sent, but for the inversion.

    Members
    -------
    ``word`` : In, 32
    ``low``, ``high`` : In, 1
        This half of the word counts in this cycle.
    ``clear`` : In, 1
        Begin anew; what counts in this cycle is forgotten.
    ``o`` : Out, 16

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
        """Carries are kept above the sums and added back at the end."""
        m = Module()
        sums = [Signal(_SUM_BITS, name=name) for name in ("low_sum", "high_sum")]
        halves = self.word[:HALF], self.word[HALF:]
        for total, half, counts in zip(sums, halves, (self.low, self.high), strict=True):
            with m.If(self.clear):
                m.d.sync += total.eq(0)
            with m.Elif(counts):
                m.d.sync += total.eq(total + half)
        both = Signal(_SUM_BITS + 1)
        folded = Signal(HALF + 1)
        m.d.sync += [
            both.eq(sums[0] + sums[1]),
            folded.eq(both[:HALF] + both[HALF:]),
            self.o.eq(folded[:HALF] + folded[HALF]),
        ]
        return m
