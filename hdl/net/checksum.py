"""The Internet checksum of a header, in hardware."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

WORD_BITS = 16
LATENCY = 3


class OnesComplementSum(wiring.Component):
    """Ones' complement sum of the 16-bit words of a header.

    A header with a right checksum sums to 0xFFFF; the checksum to send is the inverted sum over the header
    with 0 in its place.

    Members
    -------
    ``i`` : In, array of 16-bit words
    ``o`` : Out, 16
        One carry chain behind its register.

    Parameters
    ----------
    ``words`` : int, 2 to 12

    Latency
    -------
    3 cycles; one header a cycle.

    Source
    ------
    RFC 1071.
    """

    def __init__(self, *, words: int):
        if not 2 <= words <= 12:
            raise ValueError(f"words must be 2 to 12, not {words!r}")
        self.words = words
        super().__init__({"i": In(data.ArrayLayout(WORD_BITS, words)), "o": Out(WORD_BITS)})

    def elaborate(self, platform: Any) -> Module:
        """Three sums of up to four words, their sum, then the carries are added back, twice."""
        m = Module()
        parts = []
        for index, words in enumerate(range(k, self.words, 3) for k in range(3)):
            part = Signal(WORD_BITS + 2, name=f"part{index}")
            m.d.sync += part.eq(sum(self.i[word] for word in words))
            parts.append(part)
        total = Signal(WORD_BITS + 4)
        folded = Signal(WORD_BITS + 1)
        m.d.sync += [
            total.eq(parts[0] + parts[1] + parts[2]),
            folded.eq(total[:WORD_BITS] + total[WORD_BITS:]),
        ]
        m.d.comb += self.o.eq(folded[:WORD_BITS] + folded[WORD_BITS])
        return m
