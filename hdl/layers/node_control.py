"""Job control of a cluster node: start, end and failure of a job."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.layers.interface import LayerControl, Mode
from fanin.hdl.layers.registers import Failure

_SETTLE = 4  # cycles after ``start`` until the layers' ``done`` refers to this job


class JobControl(wiring.Component):
    """Job control that starts a job, awaits its end, fails it if nothing moves, and resets the node.

    A ``start`` is refused unless the node is idle. ``reset`` wins over a ``start`` of the same cycle. ``reset``
    stops the memory ports, awaits ``quiet``, and pulses ``clear``. The node is then in its power-up state.

    A *run* of a connection begins with the command ``start_links``. It ends when the connection fails or is
    reset.

    Members
    -------
    ``start`` : In(1)
        Pulse: begin a job; refused unless the node is idle.
    ``reset`` : In(1)
        Pulse: abandon a running job, and reset the node.
    ``settings`` : In, LayerControl
        The job, taken at ``start``; ``settings.start`` is 0.
    ``misplaced`` : In(1)
        An address of the job is not a multiple of a beat, or is outside the node's address space.
    ``unready`` : In(1)
        A connection has no current run, or still holds words of an earlier job.
    ``timeout`` : In(32), cycles
        Time without a transfer after which the job fails.
    ``done`` : In(1)
        All layers and the store have ended.
    ``moves`` : In(1)
        Something is transferred in this cycle.
    ``memory_error`` : In(1)
        Memory has answered with an error.
    ``link_failed`` : In(1)
        A connection has failed, or the command ``reset_links`` has ended its run.
    ``quiet`` : In(1)
        No burst of the memory ports is in flight.
    ``control`` : Out, LayerControl, registered
    ``stop`` : Out(1)
        Begin no memory burst: the job has failed, or a reset is in progress.
    ``clear`` : Out(1)
        Pulse: everything except the registers returns to its power-up state.
    ``running`` : Out(1)
        A job is in progress.
    ``resetting`` : Out(1)
        A reset is in progress.
    ``refused`` : Out(1)
        The last ``start`` was refused: a job was running or had failed, or a reset was in progress.
    ``failed`` : Out(1)
        The last job has failed.
    ``cause`` : Out, Failure
    ``expired`` : Out(1)
        Pulse: the job fails with TIMEOUT.

    Parameters
    ----------
    ``stateful`` : bool
        The layers have parameters or state. All jobs except LOAD then need a LOAD since the last reset.

    Latency
    -------
    2 cycles from ``start`` to ``control.start``. 1 cycle from ``done`` to the end of ``running``. From
    ``reset`` to the end of ``resetting``: the time memory takes to answer, plus 4 cycles.

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
        """Store and check the settings, then run the job. A job that fails while it runs requires a reset."""
        m = Module()
        control = self.control
        # Shift register of ones: its top bit is 1 after _SETTLE cycles of the job, or of the reset.
        elapsed = Signal(_SETTLE)
        loaded = Signal(init=not self.stateful)
        with m.FSM() as fsm:
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [control.eq(self.settings), self.running.eq(1)]
                    m.d.sync += [self.failed.eq(0), self.cause.eq(Failure.NONE)]
                    m.next = "CHECK"
                self._abandon(m, elapsed)
            with m.State("CHECK"):
                self._check(m, loaded)
                self._abandon(m, elapsed)
            with m.State("RUN"):
                m.d.sync += [control.start.eq(0), elapsed.eq(Cat(1, elapsed))]
                with m.If(self.memory_error | self.link_failed | self.expired):
                    cause = Mux(self.link_failed, Failure.LINK, Failure.TIMEOUT)
                    self._fail(m, Mux(self.memory_error, Failure.MEMORY, cause))
                    m.d.sync += [self.stop.eq(1), elapsed.eq(0)]
                    m.next = "FAILED"
                with m.Elif(elapsed[-1] & self.done):
                    m.d.sync += [self.running.eq(0), elapsed.eq(0), loaded.eq(1)]
                    m.next = "IDLE"
                self._abandon(m, elapsed)
            with m.State("FAILED"):
                self._abandon(m, elapsed)
            with m.State("DRAIN"):
                m.d.sync += elapsed.eq(Cat(1, elapsed))
                with m.If(elapsed[-1] & self.quiet):
                    m.d.sync += [self.clear.eq(1), elapsed.eq(0)]
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
        """Begin the job, or fail it at once without a need for a reset."""
        control = self.control
        trains, evaluates = control.mode == Mode.TRAIN, control.mode == Mode.EVALUATE
        moves_frames = trains | evaluates
        m.d.sync += control.start.eq(1)
        m.next = "RUN"
        for cause, present in (
            (Failure.CONNECTION, moves_frames & self.unready),
            (Failure.UNLOADED, (control.mode != Mode.LOAD) & ~loaded),
            (Failure.ADDRESS, self.misplaced),
            (Failure.SETTINGS, moves_frames & ~control.frames.any() | trains & ~control.batch.any()),
        ):  # the last present cause wins
            with m.If(present):
                self._fail(m, cause)
                m.d.sync += control.start.eq(0)
                m.next = "IDLE"

    def _fail(self, m: Module, cause: Any) -> None:
        m.d.sync += [self.running.eq(0), self.failed.eq(1), self.cause.eq(cause)]

    def _abandon(self, m: Module, elapsed: Signal) -> None:
        """Enter the reset from any state; it has priority over the state's other transitions."""
        with m.If(self.reset):
            m.d.sync += [self.running.eq(0), self.failed.eq(0), self.cause.eq(Failure.NONE)]
            m.d.sync += [self.control.start.eq(0), self.stop.eq(1), self.resetting.eq(1), elapsed.eq(0)]
            m.next = "DRAIN"

    def _watch(self, m: Module) -> None:
        """Count down the cycles in which nothing moves."""
        cycles_left = Signal(WORD_BITS)
        m.d.sync += self.expired.eq(self.running & ~cycles_left.any() & ~self.expired)
        with m.If(self.moves | ~self.running):
            m.d.sync += cycles_left.eq(self.timeout)
        with m.Elif(cycles_left.any()):
            m.d.sync += cycles_left.eq(cycles_left - 1)
