"""Choice among placements of equal throughput: fewest devices, then fewest cut bits, then first in order.

The order of placements is that of the sequences of their nodes' devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ortools.sat.python import cp_model

from fanin.planner.search.instance import Instance, Placement
from fanin.planner.search.limits import Limits, configure
from fanin.planner.search.priorities import choose_priorities
from fanin.planner.search.problem import Linear, Problem

CHUNK_BITS = 40  # maximum bits of a goal in ``_in_order``


Goal = Callable[[Problem], Linear]


@dataclass(frozen=True)
class Settlement:
    """Placement, with the goals that are proved optimal."""

    placement: Placement
    devices: bool  #: true if it is proved that no placement uses fewer devices
    cut_bits: bool  #: true if, in addition, none cuts fewer bits
    order: bool  #: true if, in addition, none is earlier in order
    effort: float  #: deterministic seconds


def settle(instance: Instance, placement: Placement, limits: Limits, effort: float, end: float) -> Settlement:
    """Return the best placement at the same period.

    ``effort``: limit in deterministic seconds.
    ``end``: wall-clock limit, a ``time.monotonic()``.
    """
    period = instance.in_ticks(instance.period(placement))
    state = _State(instance, period, placement, limits, effort, end)
    devices = state.improve(lambda problem: sum(problem.device_used.values()))
    cut_bits = devices and state.improve(
        lambda problem: sum(edge.bits * problem.cut[e] for e, edge in enumerate(instance.model.edges))
    )
    order = cut_bits and all(state.improve(goal) for goal in _in_order(instance))
    return Settlement(state.placement, devices, cut_bits, order, state.used_effort)


def _in_order(instance: Instance) -> Iterator[Goal]:
    """Yield goals that, minimised in turn, minimise the sequence of the nodes' devices.

    A goal reads the devices of some nodes as the digits of a number with base ``count``.
    """
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
    """State of the choice: the problem at one period, constrained to the minima of earlier goals."""

    def __init__(
        self, instance: Instance, period: int, placement: Placement, limits: Limits, effort: float, end: float
    ):
        self.instance, self.placement, self.limits, self.end = instance, placement, limits, end
        self._effort, self.used_effort = effort, 0.0
        self._period = period
        self._reached_goals: list[tuple[Goal, int]] = []
        self._priorities = False  # true if CP-SAT must choose priorities with the placement
        self._problem = self._new_problem()

    def _new_problem(self) -> Problem:
        """Return the problem with the minima of all goals so far as constraints."""
        problem = Problem(
            self.instance, self._period, self._period, count_devices=True, priorities=self._priorities
        )
        for goal, value in self._reached_goals:
            problem.cp.add(goal(problem) <= value)
        return problem

    def improve(self, goal: Goal) -> bool:
        """Minimise one more goal. Return True if the minimum is proved."""
        effort_left = self._effort - self.used_effort
        if effort_left <= 0 or time.monotonic() >= self.end:
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
        configure(solver, self.limits, effort_left, self.end)
        status = solver.solve(cp)
        self.used_effort += solver.response_proto.deterministic_time
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return False
        candidate = self._problem.placement(solver)
        if self.instance.period(candidate) > self.instance.period(self.placement):
            return False  # ticks are too coarse to see the longer period
        if choose_priorities(self.instance, candidate) is None:
            if self._priorities:
                return False
            self._priorities = True
            self._problem = self._new_problem()
            return self.improve(goal)
        self.placement = candidate
        self._reached_goals.append((goal, round(solver.objective_value)))
        cp.add(expression <= self._reached_goals[-1][1])
        return bool(status == cp_model.OPTIMAL)
