"""Nested counters: loops of a schedule, and addresses that follow the loops by one addition per step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth import Const, Module, Mux, Signal, Value


class Nest:
    """Nested loops, the innermost last; the nest moves by one step while ``advance`` is high.

    ``levels``: iterations of each loop. The nest restarts after its last step or a step with ``restart``.
    Every flag is a register, so the logic after the flags is one LUT and one carry chain deep.
    """

    def __init__(self, m: Module, levels: dict[str, int], advance: Any, *, restart: Any = None, name: str):
        self.m, self.levels, self.advance, self.restart, self.name = m, levels, advance, restart, name
        self._at_end: dict[str, Value] = {}
        self._index: dict[str, Signal] = {}
        for level, count in levels.items():
            self._at_end[level] = Signal(name=f"{name}_{level}_end") if count > 1 else Const(1, 1)
        for level, count in levels.items():
            if count > 1:
                self._index[level] = index = Signal(range(count), name=f"{name}_{level}")
                with m.If(advance & self.ends(self._inner_levels(level))):
                    m.d.sync += self._at_end[level].eq(index == count - 2)
                    m.d.sync += index.eq(Mux(self._at_end[level], 0, index + 1))
                if restart is not None:
                    with m.If(advance & restart):
                        m.d.sync += [self._at_end[level].eq(0), index.eq(0)]

    def ends(self, levels: Iterable[str]) -> Value:
        """Return whether each of the loops ``levels`` is in its last iteration."""
        total: Value = Const(1, 1)
        for level in levels:
            if self.levels[level] > 1:
                total = total & self._at_end[level]
        return total

    def begins(self, level: str) -> Value:
        """Return whether the loop ``level`` is in its first iteration."""
        return self._index[level] == 0 if self.levels[level] > 1 else Const(1, 1)

    def _inner_levels(self, level: str) -> tuple[str, ...]:
        names = tuple(self.levels)
        return names[names.index(level) + 1 :]

    def walk(
        self,
        strides: dict[str, int],
        *,
        base: int = 0,
        modulo: int | None = None,
        drift: int = 0,
        name: str,
    ) -> Signal:
        """Return a register that holds ``base`` + Σ index · stride.

        With ``modulo``, the value is reduced by it. Each pass of the whole nest adds ``drift``. A step advances
        one loop and returns the loops inside it to 0, so it changes the value by a constant: ``deltas`` of that
        loop.
        """
        deltas, span = {}, 0
        for level, count in reversed(self.levels.items()):
            deltas[level] = strides.get(level, 0) - span
            span += strides.get(level, 0) * (count - 1)
        ends = [(self.levels[level] - 1) * stride for level, stride in strides.items()]
        minimum, maximum = base + sum(min(e, 0) for e in ends), base + sum(max(e, 0) for e in ends)
        shape = range(modulo) if modulo else range(minimum, maximum + 1)
        value = Signal(shape, init=base % modulo if modulo else base, name=f"{self.name}_{name}")
        next_value = value + self._step_delta(deltas, drift - span, modulo)
        if modulo:
            reduced = value + self._step_delta(deltas, drift - span, modulo, subtrahend=modulo)
            next_value = Mux(reduced >= 0, reduced, next_value)
        with self.m.If(self.advance):
            self.m.d.sync += value.eq(next_value)
            if self.restart is not None:
                with self.m.If(self.restart):
                    self.m.d.sync += value.eq(value.init)
        return value

    def _step_delta(
        self, deltas: dict[str, int], restart: int, modulo: int | None, subtrahend: int = 0
    ) -> Value:
        """Return the constant that this step adds: the delta of the loop that advances, or ``restart``."""

        def constant(delta: int) -> Const:
            return Const((delta % modulo if modulo else delta) - subtrahend)

        selection: Value = constant(restart)
        for level, count in self.levels.items():
            if count > 1:
                selection = Mux(self._at_end[level], selection, constant(deltas[level]))
        return selection


class Loops:
    """Nest whose ``block`` levels run without a stall, one step a cycle. A block starts only while ``go``.

    ``levels``: outermost first. Levels outside ``block`` advance from block to block. A round is a pass of the
    ``inner`` levels; ``idle`` cycles follow each round. The next block starts right after the last cycle of the
    previous block if ``go`` is high.

    ``start``: a block starts, with its first step in the next cycle.
    ``step``: the nest holds a step. With ``available``, a step waits until ``available`` is high.
    ``first``, ``last``: the step belongs to the first or last round of its block.
    ``ends``: the step is the last one of its block.
    """

    def __init__(
        self,
        m: Module,
        levels: dict[str, int],
        *,
        block: tuple[str, ...],
        inner: tuple[str, ...],
        idle: int,
        go: Any,
        available: Any = None,
        name: str,
    ):
        self.start = Signal(name=f"{name}_start")
        holds = Signal(name=f"{name}_step")
        self.step = holds if available is None else holds & available
        self.first = Signal(name=f"{name}_first")
        self.nest = Nest(m, levels, self.step, name=name)
        self.last = self.nest.ends(level for level in block if level not in inner)
        ends = self.nest.ends(block)  # the block's last step
        self.ends = self.step & ends
        round_ends = self.step & self.nest.ends(inner)

        busy = Signal(name=f"{name}_busy")
        if idle:
            block_over = Signal(name=f"{name}_block_over")
            gap = Signal(idle, name=f"{name}_gap")  # a one that moves down
            m.d.sync += gap.eq(gap >> 1)
            with m.If(round_ends):
                m.d.sync += [gap.eq(1 << (idle - 1)), block_over.eq(ends)]
            next_round, free = gap[0] & ~block_over, ~busy | (gap[0] & block_over)
        else:
            next_round, free = round_ends & ~ends, ~busy | self.ends
        m.d.comb += self.start.eq(go & free)
        m.d.sync += busy.eq(self.start | ~free)
        with m.If(self.start | next_round):
            m.d.sync += [holds.eq(1), self.first.eq(self.start)]
        with m.Elif(round_ends):
            m.d.sync += holds.eq(0)
