"""Choice among placements of equal throughput: fewest devices, then least cut bits, then first in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ortools.sat.python import cp_model

from fanin.planner.search.instance import Instance, Placement
from fanin.planner.search.limits import Limits, configure
from fanin.planner.search.priorities import choose_priorities
from fanin.planner.search.problem import Linear, Problem

CHUNK_BITS = 40  # nodes are ordered in chunks; their devices, as digits of one number, fit this many bits


Goal = Callable[[Problem], Linear]


@dataclass(frozen=True)
class Settled:
    """A placement, and which of the three goals were proved optimal."""

    placement: Placement
    devices: bool
    cut_bits: bool
    order: bool
    effort: float


def settle(instance: Instance, placement: Placement, limits: Limits, effort: float, end: float) -> Settled:
    """Improve a placement at the same period, within an effort; ``end``: time of the wall-clock limit."""
    period = instance.in_ticks(instance.period(placement))
    state = _State(instance, period, placement, limits, effort, end)
    devices = state.improve(lambda problem: sum(problem.used.values()))
    bits = devices and state.improve(
        lambda problem: sum(edge.bits * problem.cut[e] for e, edge in enumerate(instance.model.edges))
    )
    order = bits and all(state.improve(goal) for goal in _in_order(instance))
    return Settled(state.placement, devices, bits, order, state.spent)


def _in_order(instance: Instance) -> Iterator[Goal]:
    """Yield goals that together minimise the devices, read as digits of a number."""
    count = len(instance.cluster.devices)
    chunk = max(int(CHUNK_BITS / max(count.bit_length(), 1)), 1)
    nodes = [n for n in range(len(instance.model.nodes)) if n not in instance.model.pinned]
    for begin in range(0, len(nodes), chunk):
        part = nodes[begin : begin + chunk]

        def goal(problem: Problem, part: list[int] = part) -> Linear:
            return sum(
                device * count ** (len(part) - 1 - place) * problem.on[node, device]
                for place, node in enumerate(part)
                for device in range(1, count)
                if (node, device) in problem.on
            )

        yield goal


class _State:
    """The problem at one period, with the values reached for earlier goals as constraints."""

    def __init__(
        self, instance: Instance, period: int, placement: Placement, limits: Limits, effort: float, end: float
    ):
        self.instance, self.placement, self.limits, self.end = instance, placement, limits, end
        self._effort, self.spent = effort, 0.0
        self._period = period
        self._reached: list[tuple[Goal, int]] = []
        self._priorities = False  # whether CP-SAT must choose priorities
        self._problem = self._with_reached()

    def _with_reached(self) -> Problem:
        problem = Problem(self.instance, self._period, self._period, counted=True, priorities=self._priorities)
        for goal, value in self._reached:
            problem.cp.add(goal(problem) <= value)
        return problem

    def improve(self, goal: Goal) -> bool:
        """Minimise one more goal; return whether the minimum is proved."""
        left = self._effort - self.spent
        if left <= 0 or time.monotonic() >= self.end:
            return False
        expression = goal(self._problem)
        if isinstance(expression, int):
            return True
        cp = self._problem.cp
        cp.clear_objective()
        cp.clear_hints()
        cp.minimize(expression)
        self._problem.hint(self.placement)
        solver = cp_model.CpSolver()
        configure(solver, self.limits, left, self.end)
        status = solver.solve(cp)
        self.spent += solver.response_proto.deterministic_time
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return False
        found = self._problem.placement(solver)
        if self.instance.period(found) > self.instance.period(self.placement):
            return False  # ticks are too coarse to see the longer period
        if choose_priorities(self.instance, found) is None:
            if self._priorities:
                return False
            self._priorities = True
            self._problem = self._with_reached()
            return self.improve(goal)
        self.placement = found
        self._reached.append((goal, round(solver.objective_value)))
        cp.add(expression <= self._reached[-1][1])
        return bool(status == cp_model.OPTIMAL)
