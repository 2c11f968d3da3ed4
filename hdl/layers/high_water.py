"""High-water mark of a FIFO's fill level."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class HighWater(wiring.Component):
    """High-water mark of a fill level.

    Members
    -------
    ``clear`` : In(1)
        Reset the mark to 0.
    ``level`` : In, range(depth + 1)
        Fill level.
    ``most`` : Out, range(depth + 1)
        The highest level since ``clear``.

    Parameters
    ----------
    ``depth`` : int, at least 1

    Latency
    -------
    1 cycle from ``level`` to ``most``.

    Source
    ------
    docs/systems/cluster.md, "The node".
    """

    def __init__(self, *, depth: int):
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        self.depth = depth
        super().__init__({"clear": In(1), "level": In(range(depth + 1)), "most": Out(range(depth + 1))})

    def elaborate(self, platform: Any) -> Module:
        """Build a register and a comparator."""
        m = Module()
        with m.If(self.clear):
            m.d.sync += self.most.eq(0)
        with m.Elif(self.level > self.most):
            m.d.sync += self.most.eq(self.level)
        return m
