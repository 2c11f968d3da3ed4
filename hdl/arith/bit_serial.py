"""Bit-serial multipliers: one bit plane of the feature a cycle, two features at a time.

A feature is a fraction, a = Σ b_j · 2^-j, so that a · x = Σ b_j · (x >> j). Two multipliers side by side add
b_0j · (x_0 >> j) + b_1j · (x_1 >> j), which is one of 0, x_0 >> j, x_1 >> j and their sum. The operands x are
common to many multipliers (forward: the weights, to all banks; backward: the scales, to all features), so
:class:`PairShifter` shifts and adds them once, and :class:`PairLanes`, where the features' bits arrive, only
selects: one LUT for each bit of two multipliers (distributed arithmetic).
"""

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

OPERAND_BITS = 32


class PairTerms(data.Struct):
    """What two neighbouring multipliers choose from: x_0 >> j, x_1 >> j and their sum.

    j is at least 1, so 31 bits would hold the first two; synthesis finds the sign written twice, and a
    simulator is faster with whole words.
    """

    first: signed(OPERAND_BITS)
    second: signed(OPERAND_BITS)
    both: signed(OPERAND_BITS)


def _check_inputs(inputs: int) -> None:
    if inputs < 2 or inputs % 2:
        raise ValueError(f"inputs must be even and at least 2, not {inputs!r}")


class PairShifter(wiring.Component):
    """The operands' half of a row of bit-serial multipliers: x >> j and the pairs' sums, plane by plane.

    Members
    -------
    ``i`` : In, ``ArrayLayout(signed(32), inputs)``
        The operands x; read in the cycles of ``load``.
    ``step`` : In(1)
        There is a plane in this cycle.
    ``load`` : In(1)
        It is the first one, j = 1: take ``i``; without it x is shifted once more.
    ``o`` : Out, ``ArrayLayout(PairTerms, inputs // 2)``
        Terms of inputs 2n and 2n + 1.

    Parameters
    ----------
    ``inputs`` : int, even, at least 2

    Latency
    -------
    2 cycles from ``step`` to ``o``; one plane a cycle.

    Source
    ------
    P4SGD, section IV-A3 (bit-serial multipliers); docs/reference/numbers.md.
    """

    LATENCY = 2

    def __init__(self, *, inputs: int):
        _check_inputs(inputs)
        self.inputs = inputs
        super().__init__(
            {
                "i": In(data.ArrayLayout(signed(OPERAND_BITS), inputs)),
                "step": In(1),
                "load": In(1),
                "o": Out(data.ArrayLayout(PairTerms, inputs // 2)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Shift, then add: two registers."""
        m = Module()
        shifted = Signal(data.ArrayLayout(signed(OPERAND_BITS), self.inputs), reset_less=True)
        terms = Signal(data.ArrayLayout(PairTerms, self.inputs // 2), reset_less=True)
        with m.If(self.step):
            for k in range(self.inputs):
                m.d.sync += shifted[k].eq(Mux(self.load, self.i[k], shifted[k]) >> 1)
        for n in range(self.inputs // 2):
            first, second = shifted[2 * n], shifted[2 * n + 1]
            m.d.sync += [
                terms[n].first.eq(first),
                terms[n].second.eq(second),
                terms[n].both.eq(first + second),
            ]
        m.d.comb += self.o.eq(terms)
        return m


class PairLanes(wiring.Component):
    """The features' half of a row of bit-serial multipliers: each pair's term, chosen by its two bits.

    Members
    -------
    ``terms`` : In, ``ArrayLayout(PairTerms, inputs // 2)``
        From a :class:`PairShifter`.
    ``bits`` : In(inputs)
        The plane: bit b_j of every feature.
    ``o`` : Out, ``ArrayLayout(signed(32), inputs // 2)``
        b_2n · (x_2n >> j) + b_2n+1 · (x_2n+1 >> j).

    Parameters
    ----------
    ``inputs`` : int, even, at least 2
        Multipliers.

    Latency
    -------
    1 cycle; one plane a cycle.

    Source
    ------
    P4SGD, section IV-A3 (bit-serial multipliers); docs/reference/numbers.md.
    """

    def __init__(self, *, inputs: int):
        _check_inputs(inputs)
        self.inputs = inputs
        super().__init__(
            {
                "terms": In(data.ArrayLayout(PairTerms, inputs // 2)),
                "bits": In(inputs),
                "o": Out(data.ArrayLayout(signed(OPERAND_BITS), inputs // 2)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A five-input function a bit."""
        m = Module()
        chosen = Signal(data.ArrayLayout(signed(OPERAND_BITS), self.inputs // 2), reset_less=True)
        for n in range(self.inputs // 2):
            terms, first, second = self.terms[n], self.bits[2 * n], self.bits[2 * n + 1]
            # Masks, for multiplexers become branches in a simulator, half of them mispredicted.
            m0, m1 = (bit.replicate(OPERAND_BITS).as_signed() for bit in (first, second))
            m.d.sync += chosen[n].eq(
                (m0 & (terms.first ^ (m1 & (terms.both ^ terms.first)))) | (~m0 & m1 & terms.second)
            )
        m.d.comb += self.o.eq(chosen)
        return m
