"""Stream cipher Trivium, one bit a cycle, as a source of numbers that other hosts cannot predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.control.headers import LEASE_BITS

_LENGTHS = (93, 84, 111)  # bits of the shift registers that together are the cipher's state s1 … s288
_WARM_UP = 4 * sum(_LENGTHS)  # steps before the key stream starts


def _step(a: Any, b: Any, c: Any) -> tuple[Any, Any, Any, Any]:
    """Return the bit that enters each register, and the bit of the key stream.

    Bit 0 of a register is its newest.
    """
    of_a, of_b, of_c = a[65] ^ a[92], b[68] ^ b[83], c[65] ^ c[110]
    into_a = of_c ^ (c[108] & c[109]) ^ a[68]
    into_b = of_a ^ (a[90] & a[91]) ^ b[77]
    into_c = of_b ^ (b[81] & b[82]) ^ c[86]
    return into_a, into_b, into_c, of_a ^ of_b ^ of_c


def _first_state() -> list[int]:
    """Return the registers at the start of the key stream, for key 0 and initialisation vector 0."""
    state: list[Sequence[int]] = [[0] * length for length in _LENGTHS]
    state[2] = [0] * (_LENGTHS[2] - 3) + [1] * 3
    for _ in range(_WARM_UP):
        *new_bits, _ = _step(*state)
        state = [[bit, *register[:-1]] for bit, register in zip(new_bits, state, strict=True)]
    return [sum(bit << n for n, bit in enumerate(register)) for register in state]


class Trivium(wiring.Component):
    """Trivium key stream generator, stepped in each cycle; key and initialisation vector are 0.

    A reset does not change the state, so that numbers are not repeated.

    Members
    -------
    ``stir`` : In, 1
        Flip the bit that enters the first register in this cycle.
    ``word`` : Out, 32
        Last bits of the key stream, the oldest in bit 0.

    Parameters
    ----------
    None.

    Latency
    -------
    1 cycle from a step to its bit in ``word``. The key stream begins with the first step.

    Source
    ------
    C. De Cannière, B. Preneel: Trivium Specifications, eSTREAM, 2005; ISO/IEC 29192-3.
    """

    def __init__(self) -> None:
        super().__init__({"stir": In(1), "word": Out(LEASE_BITS)})

    def elaborate(self, platform: Any) -> Module:
        """Build three shift registers, each fed by the one before."""
        m = Module()
        a, b, c = (
            Signal(length, init=init, reset_less=True, name=name)
            for name, length, init in zip("abc", _LENGTHS, _first_state(), strict=True)
        )
        into_a, into_b, into_c, bit = _step(a, b, c)
        word = Signal(LEASE_BITS, reset_less=True)
        m.d.sync += [
            a.eq(Cat(into_a ^ self.stir, a)),
            b.eq(Cat(into_b, b)),
            c.eq(Cat(into_c, c)),
            word.eq(Cat(word[1:], bit)),
        ]
        m.d.comb += self.word.eq(word)
        return m
