"""Vanilla model parallelism: forward of a whole mini-batch, its all-reduce, then backward, without overlap."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.glm.shapes import EngineEvents


class VanillaPhases(wiring.Component):
    """Phase of vanilla training: forward's turn or backward's.

    A mini-batch starts with forward's turn. Forward takes the whole mini-batch and then waits for the updated
    model. Meanwhile the network delivers one FA per micro-batch. Backward's turn starts when all these FAs have
    arrived, and ends when backward has replayed the mini-batch's last word.

    Members
    -------
    ``on`` : In, 1
        Training without overlap; constant from ``restart`` on. If low, ``backward`` stays low.
    ``restart`` : In, 1
        Pulse: a new run.
    ``events`` : In, ``EngineEvents``
        Events of one engine; all engines of a worker have the same turns.
    ``came`` : In, 1
        Pulse: one more micro-batch's FA has arrived, in any order.
    ``backward`` : Out, 1
        High in backward's turn; registered.

    Parameters
    ----------
    ``micro_batches`` : int, at least 1
        Maximum number of micro-batches in a mini-batch.

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
        """Count micro-batches that forward has taken.

        ``missing_fas`` counts those without an FA, ``unreplayed`` those that backward has not replayed.
        """
        m = Module()
        missing_fas = Signal(range(self.micro_batches + 1))
        unreplayed = Signal.like(missing_fas)
        m.d.sync += [
            missing_fas.eq(missing_fas + self.events.forward_last - self.came),
            unreplayed.eq(unreplayed + self.events.forward_last - self.events.backward_last),
        ]
        with m.If(self.backward):
            m.d.sync += self.backward.eq(unreplayed.any())
        with m.Else():
            m.d.sync += self.backward.eq(
                self.on & self.events.model_wait & ~missing_fas.any() & unreplayed.any()
            )
        with m.If(self.restart):
            m.d.sync += [missing_fas.eq(0), unreplayed.eq(0), self.backward.eq(0)]
        return m
