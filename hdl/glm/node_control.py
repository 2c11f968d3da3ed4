"""Starts, watches and ends the runs of a node."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.job import FailureCause, TransportStatus
from fanin.hdl.glm.node_registers import FAILURE_BITS, Failure
from fanin.hdl.glm.run_check import RunCheck

# What an engine has taken has left it after so many cycles; the check needs less.
SETTLE = 32
assert SETTLE > RunCheck.LATENCY
assert SETTLE & SETTLE - 1 == 0, "the timer's top bit says that it is over"


class NodeControl(wiring.Component):
    """From ``start`` to the end of a run, however it ends.

    A run that fails is given up: the readers stop and are emptied, the worker drops what it holds; ``failed``
    then says so until ``reset`` (a refused run's: until the next start), and until then no run starts, since
    the network may still deliver what the last one asked for. A transport that fails between runs, over an
    ACK that nobody answers, is reported too. ``reset`` ends a run at any time, without a failure.

    Members
    -------
    ``start`` : In, 1
        Pulse; ignored while ``busy``, and after a failed run until ``reset``.
    ``reset`` : In, 1
        Pulse: the transport is reset for a new job.
    ``ok`` : In, 1
        The registers ask for what the node can do.
    ``transport`` : In, ``TransportStatus``
    ``bus_error`` : In, 1
        A memory answered with an error in this run; valid 2 cycles after ``begin``.
    ``moving`` : In, 1
        Words are on their way from memory, or through backward.
    ``training`` : In, 1
        The worker is at it.
    ``begin`` : Out, 1
        Pulse: worker and readers begin.
    ``abort`` : Out, 1
        Pulse: they stop.
    ``discard`` : Out, 1
        Words from memory are to be thrown away.
    ``flush`` : Out, 1
        Pulse: the worker drops what it holds.
    ``enable`` : Out, 1
        The transport works; from the first start until ``reset``.
    ``busy`` : Out, 1
    ``failed`` : Out, 1
    ``cause`` : Out, ``FAILURE_BITS``
        A ``Failure``; counts while ``failed``.

    Parameters
    ----------
    None.

    Latency
    -------
    ``begin`` comes ``SETTLE`` + 3 = 35 cycles after ``start``; ``busy`` falls 1 cycle after ``training``. A
    failed run ends ``SETTLE`` + 3 cycles after the last word has moved.

    Source
    ------
    docs/systems/glm.md, "Start and end"; docs/systems/aggregation.md, "Worker".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "reset": In(1),
                "ok": In(1),
                "transport": In(TransportStatus),
                "bus_error": In(1),
                "moving": In(1),
                "training": In(1),
                "begin": Out(1),
                "abort": Out(1),
                "discard": Out(1),
                "flush": Out(1),
                "enable": Out(1),
                "busy": Out(1),
                "failed": Out(1),
                "cause": Out(FAILURE_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Check, run and, where that goes wrong, drain."""
        m = Module()
        timer = Signal(range(SETTLE + 1))
        settled = timer[-1]
        with m.If(~settled):
            m.d.sync += timer.eq(timer + 1)
        m.d.sync += [self.begin.eq(0), self.abort.eq(0), self.flush.eq(0)]
        spoilt = Signal()  # operations of a failed run may still be under way
        was_reset = Signal()  # since ``start``
        with m.If(self.reset):
            m.d.sync += [self.enable.eq(0), self.failed.eq(0), spoilt.eq(0), was_reset.eq(1)]
        launch = Signal()  # a cycle after ``start``: its conditions stay out of the states'
        with m.If(self.start & ~self.busy & (self.reset | ~(spoilt | self.transport.failed))):
            m.d.sync += [launch.eq(1), self.failed.eq(0), was_reset.eq(0)]
        with m.Else():
            m.d.sync += launch.eq(0)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE") | launch)
            with m.State("IDLE"):
                m.d.sync += timer.eq(0)
                with m.If(~self.reset & self.transport.failed):
                    self._fail_with_transport(m, spoilt)
                with m.Elif(launch):
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(self.reset | was_reset):
                    m.next = "IDLE"
                with m.Elif(settled & self.ok):
                    m.d.sync += [self.begin.eq(1), self.enable.eq(1)]
                    m.next = "BEGIN"
                with m.Elif(settled):
                    m.d.sync += [self.failed.eq(1), self.cause.eq(Failure.SHAPE)]
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
        return m

    def _watch(self, m: Module, spoilt: Signal, reset: Value) -> None:
        """The run ends by itself, or for one of three reasons before."""
        with m.If(reset | self.transport.failed | self.bus_error):
            m.d.sync += [self.abort.eq(1), self.discard.eq(1)]
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
            spoilt.eq(1),
        ]
