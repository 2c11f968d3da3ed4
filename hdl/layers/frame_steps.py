"""Steps of a frame in a layer with per-channel state."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.layer import REUSE
from fanin.hdl.layers.channels import group_range


class FrameSteps(wiring.Component):
    """Counter of a frame's words that pauses until a channel's sum may be used again.

    A position takes one step per group of channels, but at least ``REUSE`` steps. Steps beyond the groups are
    pauses.

    Members
    -------
    ``active`` : In(1)
        A frame is in progress.
    ``taken`` : In(1)
        A word is taken; only while ``work``.
    ``work`` : Out(1)
        This step takes a word. Low in a pause and while not ``active``.
    ``group`` : Out
        The word's group of channels; registered.
    ``first`` : Out(1)
        The word belongs to the frame's first position; registered.
    ``end`` : Out(1)
        The frame's last step ends in this cycle.

    Parameters
    ----------
    ``positions`` : int, at least 1
        Positions of a frame.
    ``groups`` : int, at least 1
        Groups of channels: words of a position.

    Latency
    -------
    None. A frame takes ``positions`` · max(``groups``, ``REUSE``) cycles if each step finds its word.

    Source
    ------
    docs/systems/layers.md: an accumulator may be read again after 8 cycles.
    """

    def __init__(self, *, positions: int, groups: int):
        self.positions = positions
        self.groups = groups
        super().__init__(
            {
                "active": In(1),
                "taken": In(1),
                "work": Out(1),
                "group": Out(group_range(groups)),
                "first": Out(1, init=1),
                "end": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count the steps of a position and the positions of a frame; ``pause``: the position has all words."""
        m = Module()
        steps = max(self.groups, REUSE)
        step = Signal(range(steps))
        position = Signal(range(self.positions))
        pause = Signal()
        last_step = step == steps - 1
        last_position = position == self.positions - 1
        advance = self.active & (self.taken | pause)
        m.d.comb += [
            self.work.eq(self.active & ~pause),
            self.group.eq(step),
            self.end.eq(advance & last_step & last_position),
        ]
        with m.If(advance):
            m.d.sync += step.eq(Mux(last_step, 0, step + 1))
            if self.groups < steps:
                m.d.sync += pause.eq((step >= self.groups - 1) & ~last_step)
            with m.If(last_step):
                m.d.sync += [
                    position.eq(Mux(last_position, 0, position + 1)),
                    self.first.eq(last_position),
                ]
        return m
