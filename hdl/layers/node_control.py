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
    """Begin a job, await its end, watch that something moves until then, and reset the node.

    A ``start`` that finds no idle node is refused. ``reset`` wins over a ``start`` of the same cycle. It stops
    the memory ports, awaits ``quiet``, and pulses ``clear``; the node is then as after its power-up.

    Members
    -------
    ``start`` : In(1)
        Pulse: begin a job; only an idle node takes it.
    ``reset`` : In(1)
        Pulse: abandon the job, if one is under way, and reset the node.
    ``settings`` : In, LayerControl
        ``start`` is 0 in it; taken at ``start``.
    ``misplaced`` : In(1)
        An address of the job is not one where the node can have anything.
    ``unready`` : In(1)
        A connection has not begun a run, or words of an earlier job wait there.
    ``timeout`` : In(32), cycles
    ``done`` : In(1)
        All layers and the store have ended.
    ``moves`` : In(1)
        Something is transferred in this cycle.
    ``memory_error`` : In(1)
        Memory has answered with an error.
    ``link_failed`` : In(1)
        A connection has failed, or its run has been forgotten.
    ``quiet`` : In(1)
        No burst of the memory ports is under way.
    ``control`` : Out, LayerControl, registered
    ``stop`` : Out(1)
        No burst is begun: the job has failed, or a reset is under way.
    ``clear`` : Out(1)
        Pulse: everything but registers becomes as after power-up.
    ``running`` : Out(1)
        A job is under way.
    ``resetting`` : Out(1)
        A reset is under way.
    ``refused`` : Out(1)
        The last ``start`` was not taken, as a job was under way, had failed, or a reset was under way.
    ``failed`` : Out(1)
        The last job has failed.
    ``cause`` : Out, Failure
    ``expired`` : Out(1)
        Pulse: the job fails with TIMEOUT.

    Parameters
    ----------
    ``stateful`` : bool
        Layers have parameters or state, which only LOAD makes known. All other jobs need one since the reset.

    Latency
    -------
    2 cycles from ``start`` to ``control.start``; 1 from ``done`` to the end of ``running``; from ``reset`` to
    the end of ``resetting`` as long as memory takes to answer, and 4 cycles.

    Source
    ------
    docs/systems/cluster.md, "The life of a node".
    """

    def __init__(self, *, stateful: bool = True):
        self.stateful = stateful
        super().__init__(
            {
                "start": In(1),
                "reset": In(1),
                "settings": In(LayerControl),
                "misplaced": In(1),
                "unready": In(1),
                "timeout": In(WORD_BITS),
                "done": In(1),
                "moves": In(1),
                "memory_error": In(1),
                "link_failed": In(1),
                "quiet": In(1),
                "control": Out(LayerControl),
                "stop": Out(1),
                "clear": Out(1),
                "running": Out(1),
                "resetting": Out(1),
                "refused": Out(1),
                "failed": Out(1),
                "cause": Out(range(max(Failure) + 1)),
                "expired": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Settings are kept and checked, then the job runs until its end. After a failure a reset is due."""
        m = Module()
        control = self.control
        age = Signal(_SETTLE)  # a one for each cycle of the job, or of the reset
        loaded = Signal(init=not self.stateful)
        with m.FSM() as fsm:
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [control.eq(self.settings), self.running.eq(1)]
                    m.d.sync += [self.failed.eq(0), self.cause.eq(Failure.NONE)]
                    m.next = "CHECK"
                self._abandon(m, age)
            with m.State("CHECK"):
                self._check(m, loaded)
                self._abandon(m, age)
            with m.State("RUN"):
                m.d.sync += [control.start.eq(0), age.eq(Cat(1, age))]
                with m.If(self.memory_error | self.link_failed | self.expired):
                    silent = Mux(self.link_failed, Failure.LINK, Failure.TIMEOUT)
                    self._fail(m, Mux(self.memory_error, Failure.MEMORY, silent))
                    m.d.sync += [self.stop.eq(1), age.eq(0)]
                    m.next = "FAILED"
                with m.Elif(age[-1] & self.done):
                    m.d.sync += [self.running.eq(0), age.eq(0), loaded.eq(1)]
                    m.next = "IDLE"
                self._abandon(m, age)
            with m.State("FAILED"):
                self._abandon(m, age)
            with m.State("DRAIN"):
                m.d.sync += age.eq(Cat(1, age))
                with m.If(age[-1] & self.quiet):
                    m.d.sync += [self.clear.eq(1), age.eq(0)]
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.sync += [self.clear.eq(0), self.stop.eq(0), self.resetting.eq(0)]
                m.d.sync += loaded.eq(loaded.init)
                m.next = "IDLE"
        with m.If(self.start):
            m.d.sync += self.refused.eq(~fsm.ongoing("IDLE") | self.reset)
        self._watch(m)
        return m

    def _check(self, m: Module, loaded: Signal) -> None:
        """Begin the job, or fail it at once: the next one may run."""
        control = self.control
        trains, evaluates = control.mode == Mode.TRAIN, control.mode == Mode.EVALUATE
        moves_frames = trains | evaluates
        m.d.sync += control.start.eq(1)
        m.next = "RUN"
        for cause, found in (
            (Failure.CONNECTION, moves_frames & self.unready),
            (Failure.UNLOADED, (control.mode != Mode.LOAD) & ~loaded),
            (Failure.ADDRESS, self.misplaced),
            (Failure.SETTINGS, moves_frames & ~control.frames.any() | trains & ~control.batch.any()),
        ):  # the last one wins
            with m.If(found):
                self._fail(m, cause)
                m.d.sync += control.start.eq(0)
                m.next = "IDLE"

    def _fail(self, m: Module, cause: Any) -> None:
        m.d.sync += [self.running.eq(0), self.failed.eq(1), self.cause.eq(cause)]

    def _abandon(self, m: Module, age: Signal) -> None:
        """Leave a state for the reset, whatever else happens in it."""
        with m.If(self.reset):
            m.d.sync += [self.running.eq(0), self.failed.eq(0), self.cause.eq(Failure.NONE)]
            m.d.sync += [self.control.start.eq(0), self.stop.eq(1), self.resetting.eq(1), age.eq(0)]
            m.next = "DRAIN"

    def _watch(self, m: Module) -> None:
        """Count down the cycles in which nothing moves."""
        left = Signal(WORD_BITS)
        m.d.sync += self.expired.eq(self.running & ~left.any() & ~self.expired)
        with m.If(self.moves | ~self.running):
            m.d.sync += left.eq(self.timeout)
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)
