"""Limits of the planner's searches, and CP-SAT settings for reproducible searches.

The *effort* of a search is in deterministic seconds: CP-SAT's count of its work, which takes about that time
and does not depend on the load of the machine. Searches limited by effort are therefore reproducible.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ortools.sat.python import cp_model

MIN_EFFORT = 0.5  # least deterministic effort with which CP-SAT's interleaved search starts


@dataclass(frozen=True)
class Limits:
    """Limits of a search."""

    seconds: float = 100.0  #: nominal time, which sets the deterministic effort and a wall-clock limit
    workers: int = 2  #: number of searches in parallel
    seed: int = 0
    gap: float = 0.0  #: possible improvement, as a share of the throughput, at which the search may end

    @property
    def effort(self) -> float:
        """Deterministic seconds of all workers together: three quarters of ``seconds`` per worker."""
        return self.seconds * self.workers * 0.75


def configure(solver: cp_model.CpSolver, limits: Limits, effort: float, end: float) -> None:
    """Configure a solver for a reproducible search.

    ``effort``: limit in deterministic seconds.
    ``end``: wall-clock limit, a ``time.monotonic()``.
    """
    solver.parameters.num_workers = limits.workers
    solver.parameters.interleave_search = limits.workers > 1
    solver.parameters.random_seed = limits.seed
    solver.parameters.catch_sigint_signal = False  # interrupts are handled by the caller
    solver.parameters.max_deterministic_time = max(effort, MIN_EFFORT)
    solver.parameters.max_time_in_seconds = max(end - time.monotonic(), MIN_EFFORT)
