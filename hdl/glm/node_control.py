"""Starts, watches and ends the runs of a node."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.job import FailureCause, TransportStatus
from fanin.hdl.glm.address_check import AddressCheck
from fanin.hdl.glm.node_registers import FAILURE_BITS, Failure
from fanin.hdl.glm.run_check import RunCheck

# What an engine has taken has left it after so many cycles; the checks, one after the other, need less.
SETTLE = 32
assert SETTLE > RunCheck.LATENCY + AddressCheck.LATENCY
assert SETTLE & SETTLE - 1 == 0, "the timer's top bit says that it is over"


class NodeControl(wiring.Component):
    """Obeys the host's commands: one run after the other, from ``start`` to its end, however it ends.

    Commands of one cycle are obeyed in the order ``reset``, ``clear``, ``start``. ``reset`` ends a run at any
    time, without a failure, and cancels a ``start`` that waits. While a run is under way ``clear`` and
    ``start`` are ignored, unless that run has been reset: then, and while the model is cleared, they wait.

    A run that fails is given up: the readers stop and are emptied, worker and transport drop what they hold.
    ``failed`` then says so until ``reset`` (a refused run's: until the next start), and until then ``start`` is
    ignored, since the other nodes wait for this job in vain. A transport that fails between runs, over an ACK
    that nobody answers, is reported too.

    Members
    -------
    ``start`` : In, 1
        Pulse: train.
    ``clear`` : In, 1
        Pulse: set the model to zero.
    ``reset`` : In, 1
        Pulse: the transport is reset for a new job.
    ``refusal`` : In, ``FAILURE_BITS``
        Why the node cannot do what the registers ask for; NONE if it can.
    ``transport`` : In, ``TransportStatus``
    ``bus_error`` : In, 1
        A memory answered with an error in this run; valid 2 cycles after ``begin``.
    ``moving`` : In, 1
        Words are on their way from memory, or through backward.
    ``occupied`` : In, 1
        The worker is ``busy``: it trains, or clears the model.
    ``training`` : In, 1
        The worker is ``running``.
    ``begin`` : Out, 1
        Pulse: worker and readers begin.
    ``clear_model`` : Out, 1
        Pulse: the worker clears the model; not while it is ``occupied``.
    ``abort`` : Out, 1
        Pulse: worker and readers stop.
    ``discard`` : Out, 1
        From ``abort`` until ``flush``: words of only one of a pair of readers are dropped.
    ``flush`` : Out, 1
        Pulse: the worker drops what it holds.
    ``enable`` : Out, 1
        The transport works; from the first start until ``reset`` or a failure.
    ``forget`` : Out, 1
        The transport is reset: for a cycle after ``reset``, and from the cycle after ``abort`` until ``flush``.
    ``busy`` : Out, 1
        A run is under way, or a command waits.
    ``failed`` : Out, 1
    ``cause`` : Out, ``FAILURE_BITS``
        A ``Failure``; counts while ``failed``.

    Parameters
    ----------
    None.

    Latency
    -------
    ``begin`` comes ``SETTLE`` + 3 = 35 cycles after ``start``, ``clear_model`` 2 cycles after ``clear``;
    ``busy`` falls 1 cycle after ``training``. A failed run ends ``SETTLE`` + 3 cycles after the last word has
    moved.

    Source
    ------
    docs/systems/glm.md, "Life of a node"; docs/systems/aggregation.md, "Worker".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "clear": In(1),
                "reset": In(1),
                "refusal": In(FAILURE_BITS),
                "transport": In(TransportStatus),
                "bus_error": In(1),
                "moving": In(1),
                "occupied": In(1),
                "training": In(1),
                "begin": Out(1),
                "clear_model": Out(1),
                "abort": Out(1),
                "discard": Out(1),
                "flush": Out(1),
                "enable": Out(1),
                "forget": Out(1),
                "busy": Out(1),
                "failed": Out(1),
                "cause": Out(FAILURE_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Clear, check, run and, where that goes wrong, drain."""
        m = Module()
        timer = Signal(range(SETTLE + 1))
        settled = timer[-1]
        with m.If(~settled):
            m.d.sync += timer.eq(timer + 1)
        m.d.sync += [self.begin.eq(0), self.clear_model.eq(0), self.abort.eq(0), self.flush.eq(0)]
        spoilt = Signal()  # a run of this job has failed
        was_reset = Signal()  # since the last run was launched
        must_clear = Signal()  # commands that wait
        must_start = Signal()
        # A transport that is being reset shows its last failure for a cycle more.
        has_failed = self.transport.failed & ~self.forget & ~self.reset
        with m.FSM() as fsm:
            idle = fsm.ongoing("IDLE")
            m.d.comb += self.busy.eq(~idle | must_clear | must_start | self.clear_model)
            with m.State("IDLE"):
                m.d.sync += timer.eq(0)
                with m.If(has_failed):
                    self._fail_with_transport(m, spoilt)
                launch = self._idle(m, spoilt | has_failed, must_clear, must_start)
            with m.State("CHECK"):
                with m.If(self.reset | was_reset):
                    m.next = "IDLE"
                with m.Elif(settled & (self.refusal == Failure.NONE)):
                    m.d.sync += [self.begin.eq(1), self.enable.eq(1)]
                    m.next = "BEGIN"
                with m.Elif(settled):
                    m.d.sync += [self.failed.eq(1), self.cause.eq(self.refusal)]
                    m.next = "IDLE"
            with m.State("BEGIN"):
                m.next = "BEGUN"
            with m.State("BEGUN"):  # from here on ``bus_error`` is that of this run
                m.next = "RUN"
            with m.State("RUN"):
                m.d.sync += timer.eq(0)
                self._watch(m, spoilt, self.reset | was_reset)
            with m.State("DRAIN"):
                with m.If(self.moving):
                    m.d.sync += timer.eq(0)
                with m.Elif(settled):
                    m.d.sync += [self.flush.eq(1), self.discard.eq(0)]
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.next = "IDLE"
            is_running = Cat(fsm.ongoing(state) for state in ("BEGIN", "BEGUN", "RUN")).any()
            is_draining = fsm.ongoing("DRAIN") | fsm.ongoing("FLUSH")
        m.d.sync += self.forget.eq(self.discard | (self.reset & ~is_running))
        with m.If(launch):
            m.d.sync += [must_start.eq(0), was_reset.eq(0), self.failed.eq(0)]
        with m.Elif(self.start & (was_reset | (idle & ~(spoilt | has_failed)))):
            m.d.sync += must_start.eq(1)
        with m.If(self.clear & (was_reset | self.reset | idle | is_draining)):
            m.d.sync += must_clear.eq(1)
        with m.If(self.reset):
            m.d.sync += [self.enable.eq(0), self.failed.eq(0), spoilt.eq(0), was_reset.eq(1)]
            m.d.sync += must_start.eq(self.start)
        return m

    def _idle(self, m: Module, is_stopped: Value, must_clear: Signal, must_start: Signal) -> Value:
        """Obey the commands that wait, ``clear`` first; whether a run is launched."""
        launch = Signal()
        is_free = ~self.occupied & ~self.clear_model
        m.d.comb += launch.eq(must_start & ~must_clear & is_free & ~self.reset & ~is_stopped)
        with m.If(must_clear & is_free):
            m.d.sync += [self.clear_model.eq(1), must_clear.eq(0)]
        with m.If(launch):
            m.next = "CHECK"
        return launch

    def _watch(self, m: Module, spoilt: Signal, reset: Value) -> None:
        """The run ends by itself, or for one of three reasons before."""
        with m.If(reset | self.transport.failed | self.bus_error):
            m.d.sync += [self.abort.eq(1), self.discard.eq(1), self.enable.eq(0)]
            m.next = "DRAIN"
        with m.Elif(~self.training):
            m.next = "IDLE"
        with m.If(~reset & self.transport.failed):
            self._fail_with_transport(m, spoilt)
        with m.Elif(~reset & self.bus_error):
            m.d.sync += [self.failed.eq(1), self.cause.eq(Failure.BUS), spoilt.eq(1)]

    def _fail_with_transport(self, m: Module, spoilt: Signal) -> None:
        timed_out = self.transport.cause == FailureCause.TIMEOUT
        m.d.sync += [
            self.failed.eq(1),
            self.cause.eq(Mux(timed_out, Failure.TIMEOUT, Failure.ROUND_WRAP)),
            self.enable.eq(0),
            spoilt.eq(1),
        ]
