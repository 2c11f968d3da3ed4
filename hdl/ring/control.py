"""Begins, watches and ends the jobs of a ring node."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.link.job import LinkFailure, LinkStatus
from fanin.hdl.ring.registers import FAILURE_BITS, Failure

SETTLE = 8  # cycles in which nothing moves, before a reset; a power of two
CHECKED = 3  # cycles from the settings of a job to the verdict on them


class RingControl(wiring.Component):
    """From ``start`` to the end of a job, however it ends.

    A job that fails is halted at once: its link falls silent, so that the others end with TIMEOUT, its
    engine stops, and memory is left alone once it has answered what is under way. Nothing moves until ``start``
    or ``stop``. Both wait for that answer, and for the MAC to take the rest of a frame.

    Members
    -------
    ``start``, ``stop`` : In, 1
        Pulses. The later one counts; ``start`` if both come at once.
    ``valid_settings`` : In, 1
        A ring can do what the settings ask for; follows ``latch`` by ``CHECKED`` cycles.
    ``link`` : In, LinkStatus
    ``mismatch`` : In, 1
    ``memory_error`` : In, 1
    ``moving`` : In, 1
        The engine waits for memory.
    ``halt`` : Out, 1
        The engine asks nothing more of memory.
    ``reset`` : Out, 1
        Pulse: engine and link become new.
    ``latch`` : Out, 1
        With ``reset``: the settings of the next job are taken from the registers.
    ``silence`` : Out, 1
        Pulse: the link alone is reset.
    ``begin`` : Out, 1
        Pulse: the link starts.
    ``running`` : Out, 1
    ``changing`` : Out, 1
        ``start`` or ``stop`` has not been carried out yet.
    ``failed`` : Out, 1
    ``cause`` : Out, ``FAILURE_BITS``
        A ``Failure``.

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
        """Halt, let memory and MAC come to rest, reset, and, after ``start``, check the settings and begin."""
        m = Module()
        asked = Signal()  # ``start`` or ``stop`` came, and is to be carried out
        restart = Signal()  # the last one was ``start``
        quiet = Signal(range(SETTLE + 1))  # cycles since memory answered all
        checking = Signal(CHECKED)  # one bit: the cycles since the reset
        m.d.comb += self.latch.eq(self.reset)
        broken = Signal()  # ``memory_error``, ``mismatch`` or the link's failure, a cycle ago
        cause = Signal.like(self.cause)
        timed_out = self.link.cause == LinkFailure.TIMEOUT
        m.d.sync += [
            broken.eq((self.memory_error | self.mismatch | self.link.failed) & self.running),
            cause.eq(Mux(timed_out & self.link.failed, Failure.TIMEOUT, Failure.MISMATCH)),
            self.reset.eq(0),
            self.silence.eq(0),
            self.begin.eq(0),
        ]
        with m.If(self.memory_error):
            m.d.sync += cause.eq(Failure.MEMORY)
        with m.FSM() as fsm:
            halting = fsm.ongoing("HALT")
            m.d.comb += self.changing.eq(~(fsm.ongoing("REST") | fsm.ongoing("RUN")) | asked)
            with m.State("REST"), m.If(asked):
                m.next = "HALT"
            with m.State("HALT"):
                m.d.sync += [self.halt.eq(1), self.running.eq(0), self.silence.eq(1), quiet.eq(0)]
                m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.sync += quiet.eq(Mux(self.moving | ~self.link.idle, 0, quiet + 1))
                with m.If(quiet[-1]):
                    m.d.sync += [self.reset.eq(1), self.failed.eq(0), checking.eq(1)]
                    m.next = "RESET"
            with m.State("RESET"):
                m.d.sync += checking.eq(Cat(0, checking))
                with m.If(checking[-1]):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "REST"
                with m.If(restart & self.valid_settings):
                    m.d.sync += [self.begin.eq(1), self.halt.eq(0), self.running.eq(1)]
                    m.next = "RUN"
                with m.Elif(restart):
                    m.d.sync += [self.failed.eq(1), self.cause.eq(Failure.SETTINGS)]
            with m.State("RUN"):
                with m.If(asked):
                    m.next = "HALT"
                with m.Elif(broken):
                    m.d.sync += [self.failed.eq(1), self.cause.eq(cause), self.silence.eq(1)]
                    m.d.sync += [self.halt.eq(1), self.running.eq(0)]
                    m.next = "REST"
        with m.If(self.start | self.stop):
            m.d.sync += [asked.eq(1), restart.eq(self.start)]
        with m.Elif(halting):
            m.d.sync += asked.eq(0)
        return m
