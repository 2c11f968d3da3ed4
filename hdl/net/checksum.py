"""The Internet checksum of a header, in hardware."""

from typing import Any

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.carry import sum_with_carry

WORD_BITS = 16
MAX_WORD = (1 << WORD_BITS) - 1
ADDENDS = 3  # a row of LUTs in front of one carry chain
LATENCY = 3


class OnesComplementSum(wiring.Component):
    """Ones' complement sum of the 16-bit words of a header.

    A header with a right checksum sums to 0xFFFF; the checksum to send is the inverted sum over the header
    with 0 in its place.

    Members
    -------
    ``i`` : In, array of 16-bit words
    ``o`` : Out, 16

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
        """Sums of three words; the sum of those; what it has beyond 16 bits is added again at the bottom.

        That addition may carry once more. Whether it does chooses between two sums, one of them 1 larger.
        """
        m = Module()
        words = [Value.cast(word) for word in self.i]
        sums = []
        for first in range(0, self.words, ADDENDS):
            addends = words[first : first + ADDENDS]
            sums.append(part := Signal(range(len(addends) * MAX_WORD + 1), name=f"sum{first}"))
            m.d.sync += part.eq(sum(addends, start=Const(0)))
        total = Signal(range(self.words * MAX_WORD + 1))
        m.d.sync += total.eq(sum(sums, start=Const(0)))
        low, high = total[:WORD_BITS], total[WORD_BITS:]
        folded, with_carry = (sum_with_carry(low, high, Const(carry, 1)) for carry in (0, 1))
        m.d.sync += self.o.eq(Mux(folded[WORD_BITS], with_carry, folded))
        return m
