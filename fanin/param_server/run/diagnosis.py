"""Diagnosis of a training with the parameter server: progress of workers and servers, and causes of stops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from fanin.base.records import Record
from fanin.runs.diagnosis import Diagnosis
from fanin.runs.output import table


@dataclass(frozen=True)
class WorkerDiagnosis:
    """Gradients that a worker pushed, how many of them each server applied, and the cause if it stopped."""

    pushed: int
    applied: tuple[int, ...]
    stopped_by: str | None

    @property
    def state(self) -> str:
        """Cause of the worker's stop in words; empty without one."""
        return f"stopped by {self.stopped_by}" if self.stopped_by else ""


@dataclass(frozen=True)
class RunState:
    """State of a run: its error, if any, its workers, and the gradients that each was to push."""

    error: str | None
    gradients_each: int
    workers: list[WorkerDiagnosis]

    def rows(self) -> list[list[str]]:
        """Return a row per worker, then a row per server."""
        each, pushed = self.gradients_each, [worker.pushed for worker in self.workers]
        rows = [
            [f"worker {number}", f"pushed {worker.pushed:,} of {each:,} gradients", worker.state]
            for number, worker in enumerate(self.workers)
        ]
        for server, counts in enumerate(zip(*(worker.applied for worker in self.workers), strict=True)):
            done = f"applied {sum(counts):,} of {each * len(counts):,}"
            rows.append([f"server {server}", done, _not_applied(pushed, counts)])
        return rows


def _not_applied(pushed: Iterable[int], applied: Iterable[int]) -> str:
    """Return in words which workers' gradients a server has not applied."""
    missing = [more - done for more, done in zip(pushed, applied, strict=True)]
    of = ", ".join(f"worker {number} ({count:,})" for number, count in enumerate(missing) if count)
    return f"not applied, though pushed: of {of}" if of else ""


def diagnose(run: Record) -> Diagnosis:
    """Diagnose a run from its ``run.json``. Raises InputError for another command's file."""
    state = _read_state(run)
    lines = table(state.rows(), indent="").split("\n") if state.workers else []
    return Diagnosis(state.error, asdict(state), lines, finished="workers" in run.value)


def _read_state(run: Record) -> RunState:
    servers = run.record("configuration").integer("servers", low=1)
    counted = run.records("workers") if "workers" in run.value else []  # absent if the run was stopped
    workers = [
        WorkerDiagnosis(
            pushed=record.integer("pushed"),
            applied=record.integers("applied", servers, low=0),
            stopped_by=record.optional_text("stopped_by"),
        )
        for record in counted
    ]
    return RunState(run.optional_text("error"), run.integer("gradients_each"), workers)
