"""The Internet checksum of a header, in hardware."""

from typing import Any

from amaranth import Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed

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
        """Down to three words; the sum of those; its carry is added back, which cannot give another.

        Three words' sum has 17 bits, so that one addition brings its carry back. Were all words added by carry
        chains, the sum would have 20, and the carry of the last addition would have to be added once more.
        """
        m = Module()
        words = [Value.cast(word) for word in self.i]
        while len(words) != 3:
            words = [fewer for at in range(0, len(words), 6) for fewer in _three(words[at : at + 6])]
        ones, twos = _full_adder(*(delayed(m, word, 1, name=f"word{n}")[-1] for n, word in enumerate(words)))
        total = Signal(WORD_BITS + 1)
        m.d.sync += [total.eq(ones + twos.rotate_left(1)), self.o.eq(total[:WORD_BITS] + total[WORD_BITS])]
        return m


def _three(words: list[Value]) -> list[Value]:
    """Three words with the ones' complement sum of up to six: the bits of each column's number of ones.

    What a column carries goes one or two columns up, from the highest to the lowest ones.
    """
    a, b, c, d, e, f = words + [Const(0, WORD_BITS)] * (6 - len(words))
    (ones, twos), (more_ones, more_twos) = _full_adder(a, b, c), _full_adder(d, e, f)
    twos, fours = _full_adder(twos, more_twos, ones & more_ones)
    return [ones ^ more_ones, twos.rotate_left(1), fours.rotate_left(2)]


def _full_adder(a: Value, b: Value, c: Value) -> tuple[Value, Value]:
    """Of each column the sum and the carry."""
    return a ^ b ^ c, a & b | c & (a | b)
