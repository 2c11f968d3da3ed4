"""Vanilla model parallelism: forward of a whole mini-batch, its all-reduce, then backward, without overlap."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.glm.shapes import EngineEvents


class VanillaPhases(wiring.Component):
    """Says whether it is backward's turn: from a mini-batch's last FA until its last word has been replayed.

    Forward's turn begins a mini-batch. Forward waits for the model when it has taken all of it, and the
    network brings an FA for each of its micro-batches; when as many have come, it is backward's turn.

    Members
    -------
    ``on`` : In, 1
        Constant from ``restart`` on; without it, it is never backward's turn alone.
    ``restart`` : In, 1
        Pulse: a new run.
    ``events`` : In, ``EngineEvents``
        Of one engine; all of a worker have the same turns.
    ``came`` : In, 1
        Pulse: the FA of one more micro-batch has come, in whatever order.
    ``backward`` : Out, 1
        Registered.

    Parameters
    ----------
    ``micro_batches`` : int, at least 1
        Of a mini-batch, at most.

    Latency
    -------
    ``backward`` rises 2 cycles after the last ``came``, and falls 2 after the event of the last word.

    Source
    ------
    P4SGD, section II-B and figure 2b; docs/systems/glm.md, "Vanilla model parallelism".
    """

    def __init__(self, *, micro_batches: int):
        if not isinstance(micro_batches, int) or micro_batches < 1:
            raise ValueError(f"micro_batches must be at least 1, not {micro_batches!r}")
        self.micro_batches = micro_batches
        super().__init__(
            {
                "on": In(1),
                "restart": In(1),
                "events": In(EngineEvents),
                "came": In(1),
                "backward": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Two counts, of micro-batches that forward has taken: those without an FA, those not replayed."""
        m = Module()
        awaited = Signal(range(self.micro_batches + 1))
        kept = Signal.like(awaited)
        m.d.sync += [
            awaited.eq(awaited + self.events.forward_last - self.came),
            kept.eq(kept + self.events.forward_last - self.events.backward_last),
        ]
        with m.If(self.backward):
            m.d.sync += self.backward.eq(kept.any())
        with m.Else():
            m.d.sync += self.backward.eq(self.on & self.events.model_wait & ~awaited.any() & kept.any())
        with m.If(self.restart):
            m.d.sync += [awaited.eq(0), kept.eq(0), self.backward.eq(0)]
        return m
