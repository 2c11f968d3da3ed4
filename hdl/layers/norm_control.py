"""Phases of a frame in online normalisation."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.layers.channels import group_range


class NormControl(wiring.Component):
    """Sequencer of a frame's phases: move 1/σ of all channels, move words, wait for final sums, update state.

    Members
    -------
    ``begin`` : In(1)
        A frame may begin.
    ``learn`` : In(1)
        The frame changes state. Otherwise its only phase is that of the words.
    ``passed`` : In(1)
        A group of 1/σ moves in this cycle.
    ``end`` : In(1)
        The frame's last step is done.
    ``updated`` : In(1)
        The update of all channels is done.
    ``idle`` : Out(1)
        No frame is in progress.
    ``scales`` : Out(1)
        1/σ moves.
    ``words`` : Out(1)
        The frame's words move.
    ``group`` : Out
        The next group of 1/σ; registered.
    ``update`` : Out(1)
        Pulse: update all channels.

    Parameters
    ----------
    ``groups`` : int, at least 1
    ``scales_pass`` : bool
        Training frames have the phase of 1/σ.
    ``drain`` : int, at least 1
        Cycles from ``end`` to ``update``.

    Latency
    -------
    1 cycle from ``begin`` to the first phase.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, groups: int, scales_pass: bool, drain: int):
        self.groups = groups
        self.scales_pass = scales_pass
        self.drain = drain
        inputs = dict.fromkeys(("begin", "learn", "passed", "end", "updated"), In(1))
        outputs = dict.fromkeys(("idle", "scales", "words", "update"), Out(1))
        super().__init__({**inputs, **outputs, "group": Out(group_range(groups))})

    def elaborate(self, platform: Any) -> Module:
        """Build a state machine with one state per phase."""
        m = Module()
        drained = Signal(range(self.drain))
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(self.begin):
                    m.next = "WORDS"
                    if self.scales_pass:
                        with m.If(self.learn):
                            m.next = "SCALES"
            if self.scales_pass:
                with m.State("SCALES"):
                    m.d.comb += self.scales.eq(1)
                    with m.If(self.passed):
                        m.d.sync += self.group.eq(self.group + 1)
                        with m.If(self.group == self.groups - 1):
                            m.d.sync += self.group.eq(0)
                            m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += self.words.eq(1)
                with m.If(self.end):
                    m.next = "IDLE"
                    with m.If(self.learn):
                        m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.sync += drained.eq(drained + 1)
                with m.If(drained == self.drain - 1):
                    m.d.comb += self.update.eq(1)
                    m.d.sync += drained.eq(0)
                    m.next = "UPDATE"
            with m.State("UPDATE"), m.If(self.updated):
                m.next = "IDLE"
        return m
