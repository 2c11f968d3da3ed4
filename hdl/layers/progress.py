"""Whether anything moves in a node, and if not, what waits."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Progress(wiring.Component):
    """Watch streams for transfers, and for the first one whose payload is not taken.

    Members
    -------
    ``valid``, ``ready`` : In(count), of each stream
    ``moves`` : Out(1)
        Some stream had a transfer two cycles before.
    ``waits`` : Out(1), ``number`` : Out, range(count)
        Whether a stream is offered and not taken, and the number of the first such stream. Both are at most
        2 · ``count`` + 2 cycles old.

    Parameters
    ----------
    ``count`` : int, streams, at least 1

    Latency
    -------
    As said of each member.

    Source
    ------
    docs/systems/cluster.md, "The node".
    """

    def __init__(self, *, count: int):
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count!r}")
        self.count = count
        super().__init__(
            {
                "valid": In(count),
                "ready": In(count),
                "moves": Out(1),
                "waits": Out(1),
                "number": Out(range(count)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Streams are looked at one by one, from the last to the first: who is found last is the first."""
        m = Module()
        transfers = Signal(self.count)
        m.d.sync += [transfers.eq(self.valid & self.ready), self.moves.eq(transfers.any())]
        rest = Signal(self.count)  # the streams that are still to be looked at, the next one highest
        at = Signal(range(self.count), init=0)  # its number
        some = Signal()
        first = Signal(range(self.count))
        m.d.sync += [rest.eq(Cat(0, rest)), at.eq(at - 1)]
        with m.If(rest[-1]):
            m.d.sync += [some.eq(1), first.eq(at)]
        with m.If(at == 0):
            m.d.sync += [
                rest.eq(self.valid & ~self.ready),
                at.eq(self.count - 1),
                some.eq(0),
                self.waits.eq(some | rest[-1]),
                self.number.eq(Mux(rest[-1], 0, first)),
            ]
        return m
