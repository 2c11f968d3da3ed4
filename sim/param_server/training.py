"""A training with the parameter server: what is asked for, what came of it, and its account on the way.

Shared by the event model (``wild``) and by the hosts of simulated hardware (``sim.cosim.param_server_hosts``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from fanin.errors import CheckFailed
from fanin.golden.param_server import ParameterServer, Tally, WorkerEndpoint
from fanin.sim.learning.learner import Learner, Measures
from fanin.sim.param_server.costs import Compute, Costs

#: Told behind every update how many gradients all servers have applied, and the simulated seconds.
Progress = Callable[[int, float], None]


class Algorithm(Enum):
    """WILD updates with whatever is there; SYNC waits for all workers' gradients."""

    WILD = "wild"
    SYNC = "sync"


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A run: each of ``workers`` pushes ``epochs`` times a gradient of each of its mini-batches.

    ``batch`` samples take time; how many there are is the learner's. ``model_bytes`` replaces the size of w and
    of gradients on links and in memory (the paper's are float64). In their first ``warm_up`` epochs workers use
    one of their slots. ``stops`` has workers whose links are cut, and when. ``waits`` False lets workers
    overwrite gradients, for tests. Raises ValueError for Sync-DSGD with more than a slot.
    """

    workers: int = 15
    slots: int = 1
    servers: int = 1
    warm_up: int = 0
    algorithm: Algorithm = Algorithm.WILD
    rate: float = 0.1
    batch: int = 8
    epochs: int = 1
    compute: Compute
    costs: Costs
    model_bytes: int | None = None
    seed: int = 0
    stops: Mapping[int, float] = field(default_factory=dict)
    waits: bool = True

    def __post_init__(self) -> None:
        if self.algorithm is Algorithm.SYNC and self.slots != 1:
            raise ValueError(f"slots must be 1 with Sync-DSGD, whose workers wait for all, not {self.slots}")

    def generator(self, worker: int) -> np.random.Generator:
        """Where a worker's times come from: its own, so that they are the same whatever the others do."""
        return np.random.default_rng((self.seed, worker))


@dataclass(frozen=True)
class Span:
    """What a worker did from when to when: ``compute``, ``push`` or ``wait`` (figures 5 and 6)."""

    worker: int
    kind: str
    begin: float
    end: float


@dataclass(frozen=True)
class Epoch:
    """When so many epochs' gradients had been applied at every server, and how good w was then.

    What a worker that stopped leaves incomplete ends with the run.
    """

    number: int
    seconds: float
    measures: Measures | None


@dataclass
class Outcome:
    """What came of a run; the last epoch is its end, ``w`` the model there. ``staleness`` has the gradients by
    updates of others that their model had not had, counted at every server; of Sync-DSGD, whose N updates are
    one, always 0. ``pushed`` are each worker's gradients, of
    ``gradients_each``, and ``applied`` those of them that each server applied.
    """

    epochs: list[Epoch] = field(default_factory=list)
    staleness: Counter[int] = field(default_factory=Counter)
    spans: list[Span] = field(default_factory=list)
    stopped: tuple[int, ...] = ()
    gradients_each: int = 0
    pushed: tuple[int, ...] = ()
    applied: tuple[tuple[int, ...], ...] = ()
    rereads: int = 0
    tally: Tally = field(default_factory=lambda: Tally(0, 0, 0, 0))
    w: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32), compare=False)

    @property
    def seconds(self) -> float:
        """Simulated, until the last update's end."""
        return self.epochs[-1].seconds

    @property
    def mean_staleness(self) -> float:
        """Updates by others, a gradient; 0 where none was applied."""
        return sum(age * times for age, times in self.staleness.items()) / max(self.staleness.total(), 1)


class Account:
    """A run's outcome as it comes about. ``model`` gives w as the servers have it, put together."""

    def __init__(self, job: TrainingJob, learner: Learner, model: Callable[[], npt.NDArray[np.float32]]):
        self.outcome = Outcome()
        #: Gradients that each worker pushes.
        self.gradients_each = learner.batches * job.epochs
        self._job, self._learner, self._model = job, learner, model
        self._applied = [0] * job.servers
        self._ended = 0.0  # the last update

    @property
    def applied(self) -> int:
        """Gradients that all servers have applied."""
        return min(self._applied)

    def note(self, worker: int, kind: str, begin: float, end: float) -> None:
        """What a worker did: see ``Span``."""
        if end > begin:
            self.outcome.spans.append(Span(worker, kind, begin, end))

    def update(self, shard: int, staleness: int, when: float) -> bool:
        """An update ends, and an epoch with its last one. Whether all servers have had one more."""
        self.outcome.staleness[0 if self._job.algorithm is Algorithm.SYNC else staleness] += 1
        before, self._ended = self.applied, max(self._ended, when)
        self._applied[shard] += 1
        if self.applied == before:
            return False
        if self.applied % (self._learner.batches * self._job.workers) == 0:
            self._end_epoch(when)
        return True

    def close(
        self, workers: Sequence[WorkerEndpoint], servers: Sequence[ParameterServer], gone: Sequence[int]
    ) -> Outcome:
        """The run has ended, without those ``gone``. Raises CheckFailed for Sync-DSGD that could not go on."""
        outcome = self.outcome
        if self.applied < self.gradients_each * self._job.workers:
            if self._job.algorithm is Algorithm.SYNC:
                raise sync_ends(gone)
            self._end_epoch(self._ended)
        outcome.stopped, outcome.w = tuple(gone), self._model()
        outcome.gradients_each = self.gradients_each
        outcome.pushed = tuple(worker.version for worker in workers)
        counts = [Counter(worker for worker, _ in server.applied) for server in servers]
        outcome.applied = tuple(tuple(count[worker.number] for count in counts) for worker in workers)
        outcome.rereads = sum(worker.rereads for worker in workers)
        outcome.tally = Tally.of(workers, servers, gone)
        return outcome

    def _end_epoch(self, when: float) -> None:
        epochs = self.outcome.epochs
        epochs.append(Epoch(len(epochs) + 1, when, self._learner.measure(self._model())))


def sync_ends(gone: Sequence[int]) -> CheckFailed:
    """What is raised when workers are missing to Sync-DSGD."""
    who, them = (
        (f"worker {gone[0]}", "it") if len(gone) == 1 else (f"workers {', '.join(map(str, gone))}", "them")
    )
    return CheckFailed(f"{who} stopped answering; Sync-DSGD cannot go on without {them}")
