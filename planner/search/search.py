"""Search for a placement: a bound from pooled devices, annealing towards it, CP-SAT to prove or improve.

Every step has a deterministic effort, so the same input gives the same placement. A wall-clock limit backs the
effort; the result records whether it stopped the search.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from ortools.sat.python import cp_model

from fanin.planner.search.climb import Climb, climb
from fanin.planner.search.instance import Instance, Placement
from fanin.planner.search.limits import Limits, configure
from fanin.planner.search.priorities import choose_priorities
from fanin.planner.search.problem import Problem
from fanin.planner.search.relax import least_period, slowest
from fanin.planner.search.start import first_placement

SIDE_BY_SIDE = 2  # climbs per round
FIRST_AIM = 0.025  # excess of the climbs' first target period over the bound, as a share
SMALL = 80  # most layers for which CP-SAT runs before annealing
SETTLING = 0.08  # share of effort and time reserved for choosing among equal placements
EXACT_EFFORT = 0.15  # share of the effort for CP-SAT at the start, and again at the end
SAME = 1e-6  # smaller gaps come from rounding odd rates to ticks


class Stop(StrEnum):
    """Reason for a search's end."""

    PROOF = "proof"  #: no placement is better
    GAP = "gap"  #: no placement is better by more than the requested gap
    TIME = "time"  #: the effort was spent, or the wall-clock limit was reached


@dataclass
class Found:
    """State of a search: the best placement, and a lower bound of the period in ticks."""

    placement: Placement | None = None
    least: int = 0
    feasible: bool = True  #: False if it is proved that no placement exists
    effort: float = 0.0
    tries: int = 0
    clock_stopped: bool = False
    stopped_by: Stop = Stop.TIME


Say = Callable[[float, float], None]  #: called with the best throughput and its bound


@dataclass
class Search:
    """A search for one instance."""

    instance: Instance
    limits: Limits
    pool: ProcessPoolExecutor | None = None
    say: Say = lambda best, bound: None
    found: Found = field(default_factory=Found)

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.limits.seconds * (1 - SETTLING)
        self._priorities = False  # whether CP-SAT must choose priorities, since a later choice has failed

    def run(self, start: Placement | None = None) -> Found:
        """Search until the gap is small enough or the effort is spent."""
        self._search(start)
        if self.found.placement is not None and self.gap <= self._enough:
            self.found.stopped_by = Stop.PROOF if self.gap <= SAME else Stop.GAP
        return self.found

    def _search(self, start: Placement | None) -> None:
        least = least_period(self.instance)
        if least is None:
            self.found.feasible = False
            return
        self.found.least = least
        for candidate in (start, None if start else first_placement(self.instance, least)):
            if candidate is not None:
                self._take(candidate)
        if self._small:
            chosen = self._priorities
            self._exactly(self.limits.effort * EXACT_EFFORT)
            if self._priorities and not chosen:  # the best had no priorities: repeat with them
                self._exactly(self.limits.effort * EXACT_EFFORT)
        if self._going_on():
            self._climb()
        while self._going_on() and self._left() > 1:
            before = self.found.effort
            self._exactly(self._left())
            if self.found.effort - before < 1e-3:
                break

    @property
    def period(self) -> int:
        """Ticks of the best placement; without one, the longest useful period."""
        best = self.found.placement
        if best is None:
            return slowest(self.instance)
        return self.instance.in_ticks(self.instance.period(best))

    @property
    def _small(self) -> bool:
        return len(self.instance.model.nodes) <= SMALL

    @property
    def gap(self) -> float:
        """Bound divided by throughput, minus one."""
        return self.period / max(self.found.least, 1) - 1

    @property
    def _enough(self) -> float:
        """Gap at which the search ends."""
        return max(self.limits.gap, SAME)

    def _left(self) -> float:
        return self.limits.effort * (1 - SETTLING) - self.found.effort

    def _going_on(self) -> bool:
        if not self.found.feasible or (self.found.placement is not None and self.gap <= self._enough):
            return False
        if time.monotonic() >= self.end:
            self.found.clock_stopped = True
        return self._left() > 0 and not self.found.clock_stopped

    def _take(self, placement: Placement) -> bool:
        """Keep a placement that improves on the best, if its connections can have priorities."""
        best = self.found.placement
        if best is not None and self.instance.period(placement) >= self.instance.period(best):
            return False
        if choose_priorities(self.instance, placement) is None:
            self._priorities = True
            return False
        self.found.placement = self.instance.canonical(placement)
        self.say(float(1 / self.instance.period(placement)), self.instance.ticks / max(self.found.least, 1))
        return True

    def _exactly(self, effort: float) -> None:
        """Solve the whole problem by CP-SAT, starting from the best placement."""
        if not self._going_on():
            return
        problem = Problem(self.instance, self.found.least, self.period, priorities=self._priorities)
        problem.cp.minimize(problem.period)
        if self.found.placement is not None:
            problem.hint(self.found.placement)
        solver = cp_model.CpSolver()
        solver.parameters.relative_gap_limit = self.limits.gap
        configure(solver, self.limits, effort, self.end)
        status = solver.solve(problem.cp)
        self.found.effort += max(solver.response_proto.deterministic_time, 1e-4)
        self.found.tries += 1
        self.found.clock_stopped |= time.monotonic() >= self.end
        if status == cp_model.INFEASIBLE:
            if self.found.placement is None:
                self.found.feasible = False
            self.found.least = self.period  # no placement is better than the best
            return
        if status == cp_model.UNKNOWN:
            return
        self._take(problem.placement(solver))
        self.found.least = max(self.found.least, round(solver.best_objective_bound))

    def _climb(self) -> None:
        """Run rounds of climbs, each from a different start."""
        start = self.found.placement or self._anywhere()
        reserve = self.limits.effort * EXACT_EFFORT if self._small else 0.0
        aim, number = FIRST_AIM, 0
        while start is not None and self._going_on() and self._left() > reserve:
            least, known = self.found.least, self.found.placement is not None
            start = self.found.placement or start
            climbs = [
                Climb(
                    self.instance,
                    start,
                    known,
                    int(least * (1 + aim)),
                    least,
                    int(least * (1 + self._enough)),
                    1000 * self.limits.seed + number + k,
                    self.end,
                )
                for k in range(SIDE_BY_SIDE)
            ]
            number += len(climbs)
            began = False
            for placement, effort in self.pool.map(climb, climbs) if self.pool else map(climb, climbs):
                self.found.tries += 1
                self.found.effort += effort
                began |= placement is not None and self._take(placement)
            # With a known placement, a failed start near the bound is no reason for a longer target.
            aim = aim if began or known else 2 * aim

    def _anywhere(self) -> Placement | None:
        """Place every node on the first device that can hold it: a start, seldom a valid placement."""
        model, cluster = self.instance.model, self.instance.cluster
        high = slowest(self.instance)
        devices, choices = [], []
        for node in range(len(model.nodes)):
            allowed = [cluster.host] if node in model.pinned else range(len(cluster.devices))
            ways = ((d, self.instance.options(node, cluster.devices[d].part, high, high)) for d in allowed)
            place = next(((d, options[0].choice) for d, options in ways if options), None)
            if place is None:
                return None
            devices.append(place[0])
            choices.append(place[1])
        return Placement(tuple(devices), tuple(choices))
