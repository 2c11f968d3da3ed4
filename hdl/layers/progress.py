"""Progress monitor of a node: detects whether any stream moves, and which one waits."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Progress(wiring.Component):
    """Progress monitor of streams: any transfer, and the first stream that waits.

    Members
    -------
    ``valid``, ``ready`` : In(count), of each stream
    ``moves`` : Out(1)
        At least one stream had a transfer two cycles ago.
    ``waits`` : Out(1), ``number`` : Out, range(count)
        ``waits``: a stream offers a transfer that is not taken. ``number``: the first such stream. The values
        are at most 2 · ``count`` + 2 cycles old.

    Parameters
    ----------
    ``count`` : int, streams, at least 1

    Latency
    -------
    See the members.

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
        """Scan the streams from the last to the first; the last hit is the first waiting stream."""
        m = Module()
        transfers = Signal(self.count)
        m.d.sync += [transfers.eq(self.valid & self.ready), self.moves.eq(transfers.any())]
        unscanned = Signal(self.count)  # bit per stream that waits, the next one to scan at the top
        scanned = Signal(range(self.count), init=0)  # number of the stream at the top of ``unscanned``
        any_waits = Signal()
        first = Signal(range(self.count))
        m.d.sync += [unscanned.eq(Cat(0, unscanned)), scanned.eq(scanned - 1)]
        with m.If(unscanned[-1]):
            m.d.sync += [any_waits.eq(1), first.eq(scanned)]
        with m.If(scanned == 0):
            m.d.sync += [
                unscanned.eq(self.valid & ~self.ready),
                scanned.eq(self.count - 1),
                any_waits.eq(0),
                self.waits.eq(any_waits | unscanned[-1]),
                self.number.eq(Mux(unscanned[-1], 0, first)),
            ]
        return m
