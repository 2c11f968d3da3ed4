"""Bit-serial multipliers: one bit plane of the features a cycle, two features at a time.

A feature is a fraction, a = Σ b_j · 2^-j, so that a · x = Σ b_j · (x >> j). A pair of multipliers adds b_0j ·
(x_0 >> j) + b_1j · (x_1 >> j). The result is one of 0, x_0 >> j, x_1 >> j and their sum.

Many multipliers share the operands x: in the forward pass all banks share the weights, in the backward pass all
features share the scales. :class:`PairShifter` therefore shifts and adds the operands once. :class:`PairLanes`
receives the features' bits and only selects: one LUT for each bit of two multipliers (distributed arithmetic).
"""

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

OPERAND_BITS = 32


class PairTerms(data.Struct):
    """Terms from which a pair of multipliers selects: x_0 >> j, x_1 >> j and their sum.

    j is at least 1, so 31 bits would hold the first two terms. Synthesis removes the duplicate sign bit, and a
    simulator is faster with whole words.
    """

    first: signed(OPERAND_BITS)
    second: signed(OPERAND_BITS)
    both: signed(OPERAND_BITS)


def _check_inputs(inputs: int) -> None:
    if inputs < 2 or inputs % 2:
        raise ValueError(f"inputs must be even and at least 2, not {inputs!r}")


class PairShifter(wiring.Component):
    """Operand half of a row of bit-serial multipliers.

    The shifter computes x >> j and the sum of each pair, plane by plane.

    Members
    -------
    ``i`` : In, ``ArrayLayout(signed(32), inputs)``
        Operands x; read in the cycles of ``load``.
    ``step`` : In(1)
        A plane is processed in this cycle.
    ``load`` : In(1)
        The plane is the first, j = 1: take ``i``. If low, shift the current x once more.
    ``o`` : Out, ``ArrayLayout(PairTerms, inputs // 2)``
        Terms of inputs 2n and 2n + 1.

    Parameters
    ----------
    ``inputs`` : int, even, at least 2
        Number of multipliers.

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
        """Shift in one cycle, add in the next."""
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
    """Feature half of a row of bit-serial multipliers: the two bits of each pair select its term.

    Members
    -------
    ``terms`` : In, ``ArrayLayout(PairTerms, inputs // 2)``
        Terms from a :class:`PairShifter`.
    ``bits`` : In(inputs)
        Bit plane: bit b_j of every feature.
    ``o`` : Out, ``ArrayLayout(signed(32), inputs // 2)``
        Selected terms: b_2n · (x_2n >> j) + b_2n+1 · (x_2n+1 >> j).

    Parameters
    ----------
    ``inputs`` : int, even, at least 2
        Number of multipliers.

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
        """Select with a function of five inputs per bit."""
        m = Module()
        selected = Signal(data.ArrayLayout(signed(OPERAND_BITS), self.inputs // 2), reset_less=True)
        for n in range(self.inputs // 2):
            terms, first, second = self.terms[n], self.bits[2 * n], self.bits[2 * n + 1]
            # Masks instead of multiplexers: a simulator turns multiplexers into branches, half of them
            # mispredicted.
            mask_0, mask_1 = (bit.replicate(OPERAND_BITS).as_signed() for bit in (first, second))
            m.d.sync += selected[n].eq(
                (mask_0 & (terms.first ^ (mask_1 & (terms.both ^ terms.first))))
                | (~mask_0 & mask_1 & terms.second)
            )
        m.d.comb += self.o.eq(selected)
        return m
