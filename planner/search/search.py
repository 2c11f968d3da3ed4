"""Search for a placement: a bound from pooled devices, annealing towards it, CP-SAT to prove or improve.

Each step has a deterministic limit of effort, so the same input gives the same placement. A wall-clock limit
also applies; the result records whether the clock stopped the search.
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
from fanin.planner.search.relax import longest_period, period_bound
from fanin.planner.search.start import first_placement

PARALLEL_CLIMBS = 2  # climbs per round
FIRST_AIM = 0.025  # excess of the climbs' first target period over the bound, as a share
SMALL_MODEL = 80  # maximum number of layers for which CP-SAT runs before annealing
SETTLE_SHARE = 0.08  # share of effort and time reserved for the choice among equal placements
EXACT_EFFORT = 0.15  # share of the effort for CP-SAT at the start, and again at the end
GAP_TOLERANCE = 1e-6  # gap that counts as none, since rates are rounded to ticks


class StopReason(StrEnum):
    """Reason for which a search has ended."""

    PROOF = "proof"  #: no placement is better
    GAP = "gap"  #: no placement is better by more than the requested gap
    TIME = "time"  #: the effort was spent, or the wall-clock limit was reached


@dataclass
class SearchState:
    """State of a search."""

    placement: Placement | None = None  #: best placement so far
    lower_bound: int = 0  #: lower bound of the period, in ticks
    feasible: bool = True  #: false if it is proved that no placement exists
    effort: float = 0.0  #: deterministic seconds
    attempts: int = 0  #: number of climbs and of CP-SAT's runs
    clock_stopped: bool = False  #: true if the wall-clock limit has stopped the search
    stopped_by: StopReason = StopReason.TIME


Report = Callable[[float, float], None]  #: callback with the best throughput and its bound


@dataclass
class Search:
    """Search for the best placement of an instance."""

    instance: Instance
    limits: Limits
    pool: ProcessPoolExecutor | None = None
    report: Report = lambda best, bound: None
    state: SearchState = field(default_factory=SearchState)

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.limits.seconds * (1 - SETTLE_SHARE)
        # true once a placement had no valid priorities; CP-SAT then chooses priorities with the placement
        self._with_priorities = False

    def run(self, start: Placement | None = None) -> SearchState:
        """Search until the gap is small enough or the effort is spent."""
        self._search(start)
        if self.state.placement is not None and self.gap <= self._target_gap:
            self.state.stopped_by = StopReason.PROOF if self.gap <= GAP_TOLERANCE else StopReason.GAP
        return self.state

    def _search(self, start: Placement | None) -> None:
        """Bound the period, find a first placement, and improve it.

        CP-SAT solves a small model first. Climbs follow. CP-SAT then has the rest of the effort, to prove that
        the placement is best or to improve it.
        """
        bound = period_bound(self.instance)
        if bound is None:
            self.state.feasible = False
            return
        self.state.lower_bound = bound
        for candidate in (start, None if start else first_placement(self.instance, bound)):
            if candidate is not None:
                self._accept(candidate)
        if self._is_small:
            had_priorities = self._with_priorities
            self._solve_exactly(self.limits.effort * EXACT_EFFORT)
            if self._with_priorities and not had_priorities:  # CP-SAT's placement had no valid priorities
                self._solve_exactly(self.limits.effort * EXACT_EFFORT)
        if self._may_continue():
            self._climb()
        while self._may_continue() and self._effort_left() > 1:
            effort_before = self.state.effort
            self._solve_exactly(self._effort_left())
            if self.state.effort - effort_before < 1e-3:
                break

    @property
    def period(self) -> int:
        """Period of the best placement in ticks; without one, the longest period of a placement."""
        best = self.state.placement
        if best is None:
            return longest_period(self.instance)
        return self.instance.in_ticks(self.instance.period(best))

    @property
    def _is_small(self) -> bool:
        return len(self.instance.model.nodes) <= SMALL_MODEL

    @property
    def gap(self) -> float:
        """Largest possible improvement of the throughput, as a share of it."""
        return self.period / max(self.state.lower_bound, 1) - 1

    @property
    def _target_gap(self) -> float:
        """Gap at which the search ends."""
        return max(self.limits.gap, GAP_TOLERANCE)

    def _effort_left(self) -> float:
        return self.limits.effort * (1 - SETTLE_SHARE) - self.state.effort

    def _may_continue(self) -> bool:
        if not self.state.feasible or (self.state.placement is not None and self.gap <= self._target_gap):
            return False
        if time.monotonic() >= self.end:
            self.state.clock_stopped = True
        return self._effort_left() > 0 and not self.state.clock_stopped

    def _accept(self, placement: Placement) -> bool:
        """Keep a placement if it improves on the best one, and its connections can have priorities."""
        best = self.state.placement
        if best is not None and self.instance.period(placement) >= self.instance.period(best):
            return False
        if choose_priorities(self.instance, placement) is None:
            self._with_priorities = True
            return False
        self.state.placement = self.instance.canonical(placement)
        self.report(
            float(1 / self.instance.period(placement)), self.instance.ticks / max(self.state.lower_bound, 1)
        )
        return True

    def _solve_exactly(self, effort: float) -> None:
        """Solve the whole problem by CP-SAT, starting from the best placement."""
        if not self._may_continue():
            return
        problem = Problem(self.instance, self.state.lower_bound, self.period, priorities=self._with_priorities)
        problem.cp.minimize(problem.period)
        if self.state.placement is not None:
            problem.hint(self.state.placement)
        solver = cp_model.CpSolver()
        solver.parameters.relative_gap_limit = self.limits.gap
        configure(solver, self.limits, effort, self.end)
        status = solver.solve(problem.cp)
        self.state.effort += max(solver.response_proto.deterministic_time, 1e-4)
        self.state.attempts += 1
        self.state.clock_stopped |= time.monotonic() >= self.end
        if status == cp_model.INFEASIBLE:
            if self.state.placement is None:
                self.state.feasible = False
            self.state.lower_bound = self.period  # no placement is better than the best
            return
        if status == cp_model.UNKNOWN:
            return
        self._accept(problem.placement(solver))
        self.state.lower_bound = max(self.state.lower_bound, round(solver.best_objective_bound))

    def _climb(self) -> None:
        """Run rounds of climbs, each from a different start."""
        start = self.state.placement or self._first_fit()
        reserve = self.limits.effort * EXACT_EFFORT if self._is_small else 0.0
        excess, number = FIRST_AIM, 0
        while start is not None and self._may_continue() and self._effort_left() > reserve:
            bound, is_valid = self.state.lower_bound, self.state.placement is not None
            start = self.state.placement or start
            climbs = [
                Climb(
                    instance=self.instance,
                    start=start,
                    is_valid=is_valid,
                    target=int(bound * (1 + excess)),
                    lower_bound=bound,
                    goal_period=int(bound * (1 + self._target_gap)),
                    seed=1000 * self.limits.seed + number + k,
                    end=self.end,
                )
                for k in range(PARALLEL_CLIMBS)
            ]
            number += len(climbs)
            is_improved = False
            for placement, effort in self.pool.map(climb, climbs) if self.pool else map(climb, climbs):
                self.state.attempts += 1
                self.state.effort += effort
                is_improved |= placement is not None and self._accept(placement)
            # With a known placement, a failed start near the bound is no reason for a longer target.
            excess = excess if is_improved or is_valid else 2 * excess

    def _first_fit(self) -> Placement | None:
        """Return each node on the first device on which it alone fits: a start that seldom keeps all rules."""
        model, cluster = self.instance.model, self.instance.cluster
        high = longest_period(self.instance)
        devices, choices = [], []
        for node in range(len(model.nodes)):
            allowed = [cluster.host] if node in model.pinned else range(len(cluster.devices))
            options_by_device = (
                (d, self.instance.options(node, cluster.devices[d].part, high, high)) for d in allowed
            )
            candidate = next(((d, options[0].choice) for d, options in options_by_device if options), None)
            if candidate is None:
                return None
            devices.append(candidate[0])
            choices.append(candidate[1])
        return Placement(tuple(devices), tuple(choices))
