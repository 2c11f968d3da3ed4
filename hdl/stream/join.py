"""Join of several streams into one."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


class StreamJoin(wiring.Component):
    """Join that passes on one payload of each input stream together.

    Members
    -------
    ``i`` : In, array of ``inputs`` streams of ``shape``
        Each is ready when all others are valid and ``o`` is ready.
    ``o`` : Out, stream of ``ArrayLayout(shape, inputs)``
        Follows ``i`` within the cycle.

    Parameters
    ----------
    ``shape`` : any shape
        Shape of an input's payload.
    ``inputs`` : int, at least 1
        Number of input streams; 2 by default.

    Latency
    -------
    0 cycles; one payload of each a cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, shape: Any, inputs: int = 2):
        if inputs < 1:
            raise ValueError(f"inputs must be at least 1, not {inputs!r}")
        self.shape = shape
        self.inputs = inputs
        super().__init__(
            {
                "i": In(stream.Signature(shape)).array(inputs),
                "o": Out(stream.Signature(data.ArrayLayout(shape, inputs))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compute each stream's ready from the valid of the other streams, not from its own."""
        m = Module()
        m.d.comb += self.o.valid.eq(Cat(port.valid for port in self.i).all())
        for n, port in enumerate(self.i):
            other_valids = Cat(other.valid for other in self.i if other is not port)
            m.d.comb += [self.o.payload[n].eq(port.payload), port.ready.eq(self.o.ready & other_valids.all())]
        return m
