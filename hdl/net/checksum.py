"""Internet checksum of a header, in hardware."""

from typing import Any

from amaranth import Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed

WORD_BITS = 16
LATENCY = 3


class OnesComplementSum(wiring.Component):
    """Ones' complement sum of the 16-bit words of a header.

    A header with a correct checksum sums to 0xFFFF. The checksum to send is the inverted sum over the header
    with 0 in the checksum field.

    Members
    -------
    ``i`` : In, array of 16-bit words
        Words of the header.
    ``o`` : Out, 16
        Sum of the words.

    Parameters
    ----------
    ``words`` : int, 2 to 12
        Number of words.

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
        """Reduce the words to three, add these, and add the carry back, which cannot cause another carry.

        The sum of three words has 17 bits, so one more addition is enough for its carry. With carry chains
        alone the sum would have 20 bits, and the carry of that addition would need another addition.
        """
        m = Module()
        words = [Value.cast(word) for word in self.i]
        while len(words) != 3:
            words = [
                compressed
                for start in range(0, len(words), 6)
                for compressed in _compress(words[start : start + 6])
            ]
        ones, twos = _full_adder(*(delayed(m, word, 1, name=f"word{n}")[-1] for n, word in enumerate(words)))
        total = Signal(WORD_BITS + 1)
        m.d.sync += [total.eq(ones + twos.rotate_left(1)), self.o.eq(total[:WORD_BITS] + total[WORD_BITS])]
        return m


def _compress(words: list[Value]) -> list[Value]:
    """Return three words with the ones' complement sum of up to six words, from the ones of each column.

    A column's carries move up one or two columns, and wrap from the highest column to the lowest.
    """
    a, b, c, d, e, f = words + [Const(0, WORD_BITS)] * (6 - len(words))
    (ones, twos), (more_ones, more_twos) = _full_adder(a, b, c), _full_adder(d, e, f)
    twos, fours = _full_adder(twos, more_twos, ones & more_ones)
    return [ones ^ more_ones, twos.rotate_left(1), fours.rotate_left(2)]


def _full_adder(a: Value, b: Value, c: Value) -> tuple[Value, Value]:
    """Return the sum and the carry of each column."""
    return a ^ b ^ c, a & b | c & (a | b)
