"""How far each worker and server of a training with the parameter server got, and what stopped it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fanin.base.records import Record


@dataclass(frozen=True)
class WorkerDiagnosis:
    """Gradients that a worker has pushed, those of them that each server has applied, and what stopped it."""

    pushed: int
    applied: tuple[int, ...]
    stopped_by: str | None

    @property
    def state(self) -> str:
        """What stopped it, in words."""
        return f"stopped by {self.stopped_by}" if self.stopped_by else ""


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run, if anything is; its workers, and how many gradients each was to push."""

    error: str | None
    gradients_each: int
    workers: list[WorkerDiagnosis]

    def rows(self) -> list[list[str]]:
        """A row per worker, then a row per server."""
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
    """Whose gradients a server has not applied."""
    missing = [more - done for more, done in zip(pushed, applied, strict=True)]
    of = ", ".join(f"worker {number} ({count:,})" for number, count in enumerate(missing) if count)
    return f"not applied, though pushed: of {of}" if of else ""


def diagnose(run: Record) -> Diagnosis:
    """From a run's ``run.json``. Raises InputError if it is none."""
    servers = run.record("configuration").integer("servers", low=1)
    counted = run.records("workers") if "workers" in run.value else []  # not of a run that was stopped
    workers = [
        WorkerDiagnosis(
            pushed=record.integer("pushed"),
            applied=record.integers("applied", servers, low=0),
            stopped_by=record.optional_text("stopped_by"),
        )
        for record in counted
    ]
    return Diagnosis(run.optional_text("error"), run.integer("gradients_each"), workers)
