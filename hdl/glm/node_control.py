"""Control of a node's runs: start, supervision and end."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.job import FailureCause, TransportStatus
from fanin.hdl.glm.address_check import AddressCheck
from fanin.hdl.glm.node_registers import FAILURE_BITS, Failure
from fanin.hdl.glm.run_check import RunCheck

# Cycles until a word that an engine has taken has passed through it. Also covers ``RunCheck`` and then
# ``AddressCheck``, which take less together.
SETTLE = 32
assert SETTLE > RunCheck.LATENCY + AddressCheck.LATENCY
assert SETTLE & SETTLE - 1 == 0, "the timer's top bit marks its end"


class NodeControl(wiring.Component):
    """Run controller: executes the host's commands, one run at a time, from ``start`` to its end or failure.

    Commands of one cycle are executed in the order ``reset``, ``clear``, ``start``.

    - ``reset`` ends a run at any time, without a failure, and cancels a pending ``start``.
    - During a run, ``clear`` and ``start`` are ignored. If the run has been reset, or while the model is being
      cleared, they are kept pending. ``clear`` is also kept pending while a failed run is drained.

    A run that fails is aborted: the readers stop and are drained, worker and transport drop their contents.
    ``failed`` is then high until ``reset``. Until then ``start`` is ignored, since the job's other nodes still
    wait for this one. A rejected run also sets ``failed``, until the next ``start``. A transport that fails
    between runs, because an ACK stays unanswered, is reported, too.

    Members
    -------
    ``start`` : In, 1
        Pulse: train.
    ``clear`` : In, 1
        Pulse: set the model to zero.
    ``reset`` : In, 1
        Pulse: reset the transport for a new job.
    ``refusal`` : In, ``FAILURE_BITS``
        Reason why the node cannot do the run that its registers describe, or NONE.
    ``transport`` : In, ``TransportStatus``
        State of the transport.
    ``bus_error`` : In, 1
        A memory has answered with an error in this run; valid 2 cycles after ``begin``.
    ``list_error`` : In, 1
        A list of a sparse node is wrong; high until the run ends. Low in a dense node.
    ``moving`` : In, 1
        Words are in flight from memory, or through backward.
    ``occupied`` : In, 1
        The worker is ``busy``: it trains, or clears the model.
    ``training`` : In, 1
        The worker is ``running``.
    ``begin`` : Out, 1
        Pulse: start worker and readers.
    ``clear_model`` : Out, 1
        Pulse: clear the worker's model; only while the worker is not ``occupied``.
    ``abort`` : Out, 1
        Pulse: stop worker and readers.
    ``discard`` : Out, 1
        High from ``abort`` until ``flush``: drop words of one of a pair of readers that lack their partner.
    ``flush`` : Out, 1
        Pulse: the worker drops its contents.
    ``enable`` : Out, 1
        Enable the transport; high from the first start until ``reset`` or a failure.
    ``forget`` : Out, 1
        Reset the transport: for a cycle after ``reset``, and from the cycle after ``abort`` until ``flush``.
    ``busy`` : Out, 1
        A run is in progress, or a command is pending.
    ``failed`` : Out, 1
        The node has failed or rejected a run.
    ``cause`` : Out, ``FAILURE_BITS``
        A ``Failure``; valid while ``failed``.

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
                "list_error": In(1),
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
        """Build the state machine.

        IDLE executes ``clear``. A launched run waits in CHECK until the checks of its registers have settled,
        passes BEGIN and BEGUN, and stays in RUN until training ends. After a reset or a failure in RUN, DRAIN
        waits until no word has moved for ``SETTLE`` cycles, and FLUSH empties the worker.
        """
        m = Module()
        timer = Signal(range(SETTLE + 1))
        timer_expired = timer[-1]
        with m.If(~timer_expired):
            m.d.sync += timer.eq(timer + 1)
        m.d.sync += [self.begin.eq(0), self.clear_model.eq(0), self.abort.eq(0), self.flush.eq(0)]
        job_failed = Signal()  # a run of this job has failed
        was_reset = Signal()  # a reset came after the last run's launch
        must_clear = Signal()  # pending commands
        must_start = Signal()
        # A transport in reset reports its last failure for one more cycle.
        has_failed = self.transport.failed & ~self.forget & ~self.reset
        with m.FSM() as fsm:
            idle = fsm.ongoing("IDLE")
            m.d.comb += self.busy.eq(~idle | must_clear | must_start | self.clear_model)
            with m.State("IDLE"):
                m.d.sync += timer.eq(0)
                with m.If(has_failed):
                    self._fail_with_transport(m, job_failed)
                launch = self._idle(m, job_failed | has_failed, must_clear, must_start)
            with m.State("CHECK"):
                with m.If(self.reset | was_reset):
                    m.next = "IDLE"
                with m.Elif(timer_expired & (self.refusal == Failure.NONE)):
                    m.d.sync += [self.begin.eq(1), self.enable.eq(1)]
                    m.next = "BEGIN"
                with m.Elif(timer_expired):
                    m.d.sync += [self.failed.eq(1), self.cause.eq(self.refusal)]
                    m.next = "IDLE"
            with m.State("BEGIN"):
                m.next = "BEGUN"
            with m.State("BEGUN"):  # after it, ``bus_error`` is that of this run
                m.next = "RUN"
            with m.State("RUN"):
                m.d.sync += timer.eq(0)
                self._watch(m, job_failed, self.reset | was_reset)
            with m.State("DRAIN"):
                with m.If(self.moving):
                    m.d.sync += timer.eq(0)
                with m.Elif(timer_expired):
                    m.d.sync += [self.flush.eq(1), self.discard.eq(0)]
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.next = "IDLE"
            is_running = Cat(fsm.ongoing(state) for state in ("BEGIN", "BEGUN", "RUN")).any()
            is_draining = fsm.ongoing("DRAIN") | fsm.ongoing("FLUSH")
        m.d.sync += self.forget.eq(self.discard | (self.reset & ~is_running))
        with m.If(launch):
            m.d.sync += [must_start.eq(0), was_reset.eq(0), self.failed.eq(0)]
        with m.Elif(self.start & (was_reset | (idle & ~(job_failed | has_failed)))):
            m.d.sync += must_start.eq(1)
        with m.If(self.clear & (was_reset | self.reset | idle | is_draining)):
            m.d.sync += must_clear.eq(1)
        with m.If(self.reset):
            m.d.sync += [self.enable.eq(0), self.failed.eq(0), job_failed.eq(0), was_reset.eq(1)]
            m.d.sync += must_start.eq(self.start)
        return m

    def _idle(self, m: Module, has_failed: Value, must_clear: Signal, must_start: Signal) -> Value:
        """Execute pending commands, ``clear`` first; return whether a run is launched.

        No run is launched after a failure of the job (``has_failed``).
        """
        launch = Signal()
        is_free = ~self.occupied & ~self.clear_model
        m.d.comb += launch.eq(must_start & ~must_clear & is_free & ~self.reset & ~has_failed)
        with m.If(must_clear & is_free):
            m.d.sync += [self.clear_model.eq(1), must_clear.eq(0)]
        with m.If(launch):
            m.next = "CHECK"
        return launch

    def _watch(self, m: Module, job_failed: Signal, reset: Value) -> None:
        """End the run when training ends, or abort it on a reset, a failure of the transport or a bus error."""
        with m.If(reset | self.transport.failed | self.bus_error | self.list_error):
            m.d.sync += [self.abort.eq(1), self.discard.eq(1), self.enable.eq(0)]
            m.next = "DRAIN"
        with m.Elif(~self.training):
            m.next = "IDLE"
        with m.If(~reset & self.transport.failed):
            self._fail_with_transport(m, job_failed)
        with m.Elif(~reset & (self.bus_error | self.list_error)):
            cause = Mux(self.bus_error, Failure.BUS, Failure.LIST)
            m.d.sync += [self.failed.eq(1), self.cause.eq(cause), job_failed.eq(1)]

    def _fail_with_transport(self, m: Module, job_failed: Signal) -> None:
        timed_out = self.transport.cause == FailureCause.TIMEOUT
        m.d.sync += [
            self.failed.eq(1),
            self.cause.eq(Mux(timed_out, Failure.TIMEOUT, Failure.ROUND_WRAP)),
            self.enable.eq(0),
            job_failed.eq(1),
        ]
