"""Jobs of a cluster node: begin, end, and why one failed."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.layers.interface import LayerControl, Mode
from fanin.hdl.layers.registers import Failure

_SETTLE = 4  # cycles after ``start`` from which on the layers' ``done`` is that of this job


class JobControl(wiring.Component):
    """Begin a job, await its end, and watch that something moves until then.

    Members
    -------
    ``start`` : In(1), pulse: begin, unless a job is under way or only a reset helps
    ``settings`` : In, LayerControl, whose ``start`` is 0; taken at ``start``
    ``timeout`` : In(32), cycles
    ``done`` : In(1), all layers and the store have ended
    ``moves`` : In(1), something is transferred in this cycle
    ``memory_error``, ``link_failed`` : In(1)
    ``control`` : Out, LayerControl, registered
    ``running``, ``failed`` : Out(1)
    ``cause`` : Out, Failure
    ``expired`` : Out(1), pulse: the job fails with TIMEOUT

    Parameters
    ----------
    None.

    Latency
    -------
    2 cycles from ``start`` to ``control.start``; 1 from ``done`` to the end of ``running``.

    Source
    ------
    docs/systems/cluster.md, "The node".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "settings": In(LayerControl),
                "timeout": In(WORD_BITS),
                "done": In(1),
                "moves": In(1),
                "memory_error": In(1),
                "link_failed": In(1),
                "control": Out(LayerControl),
                "running": Out(1),
                "failed": Out(1),
                "cause": Out(range(max(Failure) + 1)),
                "expired": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Settings are kept and checked, then the job runs until its end. A failure of a job is for good."""
        m = Module()
        control = self.control
        age = Signal(_SETTLE)  # a one for each cycle of the job
        with m.FSM():
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += [control.eq(self.settings), self.running.eq(1)]
                m.d.sync += [self.failed.eq(0), self.cause.eq(Failure.NONE)]
                m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "RUN"
                m.d.sync += control.start.eq(1)
                trains = control.mode == Mode.TRAIN
                evaluates = control.mode == Mode.EVALUATE
                with m.If((trains | evaluates) & ~control.frames.any() | trains & ~control.batch.any()):
                    m.d.sync += [control.start.eq(0), self.running.eq(0)]
                    m.d.sync += [self.failed.eq(1), self.cause.eq(Failure.SETTINGS)]
                    m.next = "IDLE"
            with m.State("RUN"):
                m.d.sync += [control.start.eq(0), age.eq(Cat(1, age))]
                with m.If(self.memory_error | self.link_failed | self.expired):
                    m.d.sync += [self.running.eq(0), self.failed.eq(1)]
                    silent = Mux(self.link_failed, Failure.LINK, Failure.TIMEOUT)
                    m.d.sync += self.cause.eq(Mux(self.memory_error, Failure.MEMORY, silent))
                    m.next = "FAILED"
                with m.Elif(age[-1] & self.done):
                    m.d.sync += [self.running.eq(0), age.eq(0)]
                    m.next = "IDLE"
            with m.State("FAILED"):
                pass
        self._watch(m)
        return m

    def _watch(self, m: Module) -> None:
        """Count down the cycles in which nothing moves."""
        left = Signal(WORD_BITS)
        m.d.sync += self.expired.eq(self.running & ~left.any() & ~self.expired)
        with m.If(self.moves | ~self.running):
            m.d.sync += left.eq(self.timeout)
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)
