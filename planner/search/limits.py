"""How hard the planner looks, and how CP-SAT is set up to look the same way every time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ortools.sat.python import cp_model

LEAST_EFFORT = 0.5  # CP-SAT's interleaved search does not start with less


@dataclass(frozen=True)
class Limits:
    """``seconds`` is nominal: the deterministic effort of so long, and the wall clock behind it.

    ``gap``: how much better the best plan may still be, as a share of the throughput, when the search ends.
    """

    seconds: float = 100.0
    workers: int = 2
    seed: int = 0
    gap: float = 0.0

    @property
    def effort(self) -> float:
        """Deterministic seconds, of all workers together: three quarters of what ``seconds`` hold."""
        return self.seconds * self.workers * 0.75


def configure(solver: cp_model.CpSolver, limits: Limits, effort: float, end: float) -> None:
    """Interleaved search, which is the same in every run, within an effort; the wall clock stands behind it."""
    solver.parameters.num_workers = limits.workers
    solver.parameters.interleave_search = limits.workers > 1
    solver.parameters.random_seed = limits.seed
    solver.parameters.catch_sigint_signal = False  # an interrupt is the caller's
    solver.parameters.max_deterministic_time = max(effort, LEAST_EFFORT)
    solver.parameters.max_time_in_seconds = max(end - time.monotonic(), LEAST_EFFORT)
