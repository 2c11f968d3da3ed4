"""Statistics of the staleness of the gradients that a parameter server applied."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.param_server.shapes import VERSION_BITS


class Staleness(wiring.Component):
    """Sum and maximum of the gradients' staleness.

    Members
    -------
    ``clear`` : In, 1
        Set both outputs to 0.
    ``add`` : In, 1
        Include ``age``. Not twice in 2 cycles.
    ``age`` : In, 32
        Staleness of a gradient, in updates.
    ``total`` : Out, 64
        Sum of all ages.
    ``largest`` : Out, 32
        Largest age.

    Latency
    -------
    1 cycle; 2 for the upper half of ``total``.

    Parameters
    ----------
    None.

    Source
    ------
    docs/systems/param-server-hardware.md.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "clear": In(1),
                "add": In(1),
                "age": In(VERSION_BITS),
                "total": Out(2 * VERSION_BITS),
                "largest": Out(VERSION_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Add in two steps, since a 64-bit carry chain is too long: the carry reaches the upper half later."""
        m = Module()
        low = Signal(VERSION_BITS)
        carry = Signal()
        high = Signal(VERSION_BITS)
        m.d.comb += self.total.eq(Cat(low, high))
        m.d.sync += [carry.eq(0), high.eq(high + carry)]
        with m.If(self.add):
            m.d.sync += Cat(low, carry).eq(low + self.age)
            with m.If(self.age > self.largest):
                m.d.sync += self.largest.eq(self.age)
        with m.If(self.clear):
            m.d.sync += [register.eq(0) for register in (low, carry, high, self.largest)]
        return m
