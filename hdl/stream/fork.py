"""Fork of one stream to several receivers."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class StreamFork(wiring.Component):
    """Fork that gives every payload to each of several receivers, to each when it is ready.

    Members
    -------
    ``i`` : In, stream of ``shape``
        Ready when every receiver has taken the payload or takes it in this cycle.
    ``o`` : Out, array of ``outputs`` streams of ``shape``
        Valid and payload follow ``i`` within the cycle.

    Parameters
    ----------
    ``shape`` : any shape
        Shape of the payload.
    ``outputs`` : int, at least 1
        Number of receivers; 2 by default.

    Latency
    -------
    0 cycles; one payload a cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, shape: Any, outputs: int = 2):
        if outputs < 1:
            raise ValueError(f"outputs must be at least 1, not {outputs!r}")
        self.shape = shape
        self.outputs = outputs
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)).array(outputs)})

    def elaborate(self, platform: Any) -> Module:
        """Keep one bit of ``taken`` per receiver: it has taken the current payload while another has not."""
        m = Module()
        taken = Signal(self.outputs)
        done = Signal(self.outputs)
        m.d.comb += self.i.ready.eq(done.all())
        m.d.sync += taken.eq(done & ~(done.all() | ~self.i.valid).replicate(self.outputs))
        for port, has_taken, is_done in zip(self.o, taken, done, strict=True):
            m.d.comb += [
                port.payload.eq(self.i.payload),
                port.valid.eq(self.i.valid & ~has_taken),
                is_done.eq(has_taken | port.ready),
            ]
        return m
