"""Control of a ring node's jobs: start, supervision and end."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.link.job import LinkFailure, LinkStatus
from fanin.hdl.ring.registers import FAILURE_BITS, Failure

SETTLE = 8  # idle cycles of memory and MAC before a reset; a power of two
CHECKED = 3  # cycles from ``latch`` to ``valid_settings``


class RingControl(wiring.Component):
    """State machine of a job, from ``start`` to its end or failure.

    A failure halts the job immediately. The link falls silent, so the other nodes end with TIMEOUT. The engine
    stops and issues no further memory requests. The node then waits for ``start`` or ``stop``. These commands
    take effect after memory has answered all requests and the MAC has taken the rest of a frame.

    Members
    -------
    ``start``, ``stop`` : In, 1
        Pulses. The later one counts; ``start`` if both arrive in one cycle.
    ``valid_settings`` : In, 1
        The latched settings are valid for a ring; settles ``CHECKED`` cycles after ``latch``.
    ``link`` : In, LinkStatus
        State of the link: idle, failed and the cause.
    ``mismatch`` : In, 1
        The engine found a frame or a checksum that differs.
    ``memory_error`` : In, 1
        Memory answered with an error.
    ``moving`` : In, 1
        Memory has not answered all requests of the engine.
    ``halt`` : Out, 1
        The engine must not issue further memory requests.
    ``reset`` : Out, 1
        Pulse: reset engine and link.
    ``latch`` : Out, 1
        Pulse, together with ``reset``: copy the next job's settings from the registers.
    ``silence`` : Out, 1
        Pulse: reset only the link.
    ``begin`` : Out, 1
        Pulse: start the link.
    ``running`` : Out, 1
        A job is running.
    ``changing`` : Out, 1
        ``start`` or ``stop`` has not taken effect yet.
    ``failed`` : Out, 1
        The last job failed; 0 again after the next ``reset``.
    ``cause`` : Out, ``FAILURE_BITS``
        ``Failure`` of that job; valid while ``failed`` is 1.

    Parameters
    ----------
    None.

    Latency
    -------
    ``begin`` comes ``SETTLE`` + ``CHECKED`` + 5 = 16 cycles after ``start`` when memory is idle and no frame
    is being sent; ``halt`` 2 cycles after a failure.

    Source
    ------
    docs/systems/ring.md, "The engine".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "valid_settings": In(1),
                "link": In(LinkStatus),
                "mismatch": In(1),
                "memory_error": In(1),
                "moving": In(1),
                "halt": Out(1, init=1),
                "reset": Out(1),
                "latch": Out(1),
                "silence": Out(1),
                "begin": Out(1),
                "running": Out(1),
                "changing": Out(1),
                "failed": Out(1),
                "cause": Out(FAILURE_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Halt, wait for memory and MAC, reset; after ``start`` also check the settings and begin."""
        m = Module()
        requested = Signal()  # ``start`` or ``stop`` was pulsed, and the state machine has not reached HALT
        restart = Signal()  # the later pulse was ``start``
        idle_cycles = Signal(range(SETTLE + 1))  # cycles since memory and link became idle
        checking = Signal(CHECKED)  # one-hot: cycles since the reset
        m.d.comb += self.latch.eq(self.reset)
        has_failed = Signal()  # ``memory_error``, ``mismatch`` or a link failure in the previous cycle
        cause = Signal.like(self.cause)
        timed_out = self.link.cause == LinkFailure.TIMEOUT
        m.d.sync += [
            has_failed.eq((self.memory_error | self.mismatch | self.link.failed) & self.running),
            cause.eq(Mux(timed_out & self.link.failed, Failure.TIMEOUT, Failure.MISMATCH)),
            self.reset.eq(0),
            self.silence.eq(0),
            self.begin.eq(0),
        ]
        with m.If(self.memory_error):
            m.d.sync += cause.eq(Failure.MEMORY)
        with m.FSM() as fsm:
            halting = fsm.ongoing("HALT")
            m.d.comb += self.changing.eq(~(fsm.ongoing("IDLE") | fsm.ongoing("RUN")) | requested)
            with m.State("IDLE"), m.If(requested):
                m.next = "HALT"
            with m.State("HALT"):
                m.d.sync += [self.halt.eq(1), self.running.eq(0), self.silence.eq(1), idle_cycles.eq(0)]
                m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.sync += idle_cycles.eq(Mux(self.moving | ~self.link.idle, 0, idle_cycles + 1))
                with m.If(idle_cycles[-1]):
                    m.d.sync += [self.reset.eq(1), self.failed.eq(0), checking.eq(1)]
                    m.next = "RESET"
            with m.State("RESET"):
                m.d.sync += checking.eq(Cat(0, checking))
                with m.If(checking[-1]):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "IDLE"
                with m.If(restart & self.valid_settings):
                    m.d.sync += [self.begin.eq(1), self.halt.eq(0), self.running.eq(1)]
                    m.next = "RUN"
                with m.Elif(restart):
                    m.d.sync += [self.failed.eq(1), self.cause.eq(Failure.SETTINGS)]
            with m.State("RUN"):
                with m.If(requested):
                    m.next = "HALT"
                with m.Elif(has_failed):
                    m.d.sync += [self.failed.eq(1), self.cause.eq(cause), self.silence.eq(1)]
                    m.d.sync += [self.halt.eq(1), self.running.eq(0)]
                    m.next = "IDLE"
        with m.If(self.start | self.stop):
            m.d.sync += [requested.eq(1), restart.eq(self.start)]
        with m.Elif(halting):
            m.d.sync += requested.eq(0)
        return m
