"""A training with the parameter server: the job, its outcome, and the account that is kept during the run.

Shared by the event model (``events``) and by the hosts of simulated hardware (``hosts``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.param_server.facts import Algorithm, ParamServerConfig, PushAfter, Receivers
from fanin.param_server.golden import ParameterServer, Pusher, Tally
from fanin.sim.learning.learner import Learner, Measures
from fanin.sim.param_server.costs import Compute, Costs


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A run: each of ``workers`` pushes ``epochs`` times a gradient of each of its mini-batches.

    ``batch`` is the number of samples that computing takes time for; the gradient's samples are the learner's.
    ``model_bytes`` replaces the size of w and of gradients on links and in memory (the paper's are float64).
    In their first ``warm_up`` epochs workers use one of their slots. ``push_after`` None is as the server is
    made: one that updates and pushes in one pass pushes behind every gradient, a thread behind a scan.
    ``stops`` says which workers' links are cut, and when, in seconds; ``returns``, when which of them are
    replaced. ``waits`` False lets workers overwrite gradients, for tests. Raises ValueError for Sync-DSGD with
    more than a slot, or with what only the asynchronous server chooses, for a replacement of a worker that has
    not stopped before, or beside several servers.
    """

    workers: int = ParamServerConfig.workers
    slots: int = ParamServerConfig.slots
    servers: int = ParamServerConfig.servers
    warm_up: int = 0
    algorithm: Algorithm = Algorithm.WILD
    push_after: PushAfter | None = None
    receivers: Receivers = Receivers.BARTER
    lr: float = 0.1
    batch: int = 8
    epochs: int = 1
    compute: Compute
    costs: Costs
    model_bytes: int | None = None
    seed: int = 0
    stops: Mapping[int, float] = field(default_factory=dict)
    returns: Mapping[int, float] = field(default_factory=dict)
    waits: bool = True

    def __post_init__(self) -> None:
        if self.returns and self.servers > 1:
            raise ValueError(f"servers must be 1 where a worker is replaced, not {self.servers}")
        for worker, seconds in self.returns.items():
            if not seconds > (stops := self.stops.get(worker, math.inf)):
                raise ValueError(
                    f"returns must be later than the stop at {stops}, not {seconds} of worker {worker}"
                )
        if self.algorithm is Algorithm.WILD:
            return
        if self.slots != 1:
            raise ValueError(f"slots must be 1 with Sync-DSGD, whose workers wait for all, not {self.slots}")
        if self.push_after is not None:
            reason = "which pushes behind the gradients of all"
            raise ValueError(f"push_after must be None with Sync-DSGD, {reason}, not {self.push_after.value}")
        if self.receivers is not Receivers.BARTER:
            reason = "whose rows have a gradient of every worker"
            raise ValueError(f"receivers must be barter with Sync-DSGD, {reason}, not {self.receivers.value}")

    @property
    def pushes_after_scan(self) -> bool:
        """Whether the asynchronous server pushes behind a scan."""
        if self.push_after is None:
            return not self.costs.one_pass
        return self.push_after is PushAfter.SCAN

    @property
    def broadcasts(self) -> bool:
        """Whether the asynchronous server pushes every row to all workers."""
        return self.receivers is Receivers.BROADCAST

    def gradients_each(self, learner: Learner) -> int:
        """How many gradients each worker pushes."""
        return learner.batches * self.epochs

    def generator(self, worker: int) -> np.random.Generator:
        """The source of a worker's times: one for each, so that they are the same whatever the others do."""
        return np.random.default_rng((self.seed, worker))


@dataclass(frozen=True, slots=True)
class Span:
    """What a worker did from when to when: ``compute``, ``push`` or ``wait`` (figures 5 and 6)."""

    worker: int
    kind: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class ServerSpan:
    """What a server did from when to when: ``update`` w with a worker's gradient (Op1), or ``push`` a row to a
    worker (Op2), which ends when the worker has it. In one pass both begin together."""

    shard: int
    worker: int
    kind: str
    begin: float
    end: float


@dataclass
class Applied:
    """An update: at which server, with which worker's gradient, and when its row was in memory, in seconds.

    ``came`` is when the gradient was in the server's memory, ``left`` when its row could leave, ``arrived``
    when its worker had received a row with it: with Sync-DSGD, that of the whole round.
    """

    shard: int
    worker: int
    version: int
    made: float
    came: float = math.nan
    left: float = math.nan
    arrived: float = math.nan


@dataclass(frozen=True)
class Epoch:
    """When every server had applied the gradients of ``number`` epochs, and how good w was then.

    An epoch that a dead worker leaves incomplete ends with the run.
    """

    number: int
    seconds: float
    measures: Measures | None


@dataclass
class Outcome:
    """The result of a run; the last epoch is its end, and ``w`` the model then.

    ``staleness`` counts gradients, at every server, by the number of updates of others that their model lacked;
    with Sync-DSGD, whose N updates are one, it is always 0. Each worker was to push ``gradients_each``;
    ``pushed`` is how many it did, and ``applied`` how many of them each server applied. ``stopped`` are workers
    that did so before the servers had applied all of theirs. ``updates``: every one, in their order, of
    simulated hardware alone. Times count from ``began``, in seconds of the simulation.
    """

    epochs: list[Epoch] = field(default_factory=list)
    staleness: Counter[int] = field(default_factory=Counter)
    spans: list[Span] = field(default_factory=list)
    server_spans: list[ServerSpan] = field(default_factory=list)
    updates: list[Applied] = field(default_factory=list)
    began: float = 0.0
    stopped: tuple[int, ...] = ()
    gradients_each: int = 0
    pushed: tuple[int, ...] = ()
    applied: tuple[tuple[int, ...], ...] = ()
    rereads: int = 0
    tally: Tally = field(default_factory=lambda: Tally(0, 0, 0, 0))
    w: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32), compare=False)

    @property
    def seconds(self) -> float:
        """Simulated time until the last update's end."""
        return self.epochs[-1].seconds

    @property
    def mean_staleness(self) -> float:
        """Updates by others per gradient; 0 if none was applied."""
        return sum(age * times for age, times in self.staleness.items()) / max(self.staleness.total(), 1)


#: Called after every update with the number of gradients that all servers have applied, simulated seconds, and
#: the epochs that have ended. In RTL, which another process runs, seconds are NaN and there are no epochs.
Progress = Callable[[int, float, Sequence[Epoch]], None]


class Account:
    """Builds a run's outcome during the run. ``model`` gives w, put together from the servers' parts."""

    def __init__(self, job: TrainingJob, learner: Learner, model: Callable[[], npt.NDArray[np.float32]]):
        self.outcome = Outcome()
        self.gradients_each = job.gradients_each(learner)
        self._job, self._learner, self._model = job, learner, model
        self._applied = [0] * job.servers
        self._ended = 0.0  # the last update
        self._arrived = [0.0] * job.workers  # each worker's last push

    @property
    def applied(self) -> int:
        """Gradients that all servers have applied."""
        return min(self._applied)

    def note(self, worker: int, kind: str, begin: float, end: float) -> None:
        """What a worker did: see ``Span``. It waits no earlier than its last push has arrived."""
        if kind == "push":
            self._arrived[worker] = end
        elif kind == "wait":
            begin = max(begin, self._arrived[worker])
        if end > begin:
            self.outcome.spans.append(Span(worker, kind, begin, end))

    def note_server(self, shard: int, worker: int, kind: str, begin: float, end: float) -> None:
        """What a server did: see ``ServerSpan``."""
        self.outcome.server_spans.append(ServerSpan(shard, worker, kind, begin, end))

    def update(self, shard: int, staleness: int, when: float) -> bool:
        """An update ends, and an epoch with its last one. Returns whether all servers have applied one more."""
        self.outcome.staleness[0 if self._job.algorithm is Algorithm.SYNC else staleness] += 1
        before, self._ended = self.applied, max(self._ended, when)
        self._applied[shard] += 1
        if self.applied == before:
            return False
        if self.applied % (self._learner.batches * self._job.workers) == 0:
            self._end_epoch(when)
        return True

    def close(
        self, workers: Sequence[Pusher], servers: Sequence[ParameterServer], dead: Sequence[int]
    ) -> Outcome:
        """End the run. Workers that are ``dead`` have stopped, unless all of their gradients were applied.

        Raises CheckFailed for Sync-DSGD that could not go on.
        """
        outcome = self.outcome
        counts = [Counter(worker for worker, _ in server.applied) for server in servers]
        outcome.applied = tuple(tuple(count[worker.number] for count in counts) for worker in workers)
        dead = [number for number in dead if min(outcome.applied[number]) < self.gradients_each]
        if self.applied < self.gradients_each * self._job.workers:
            if self._job.algorithm is Algorithm.SYNC:
                raise sync_ends(dead)
            self._end_epoch(self._ended)
        outcome.stopped, outcome.w = tuple(dead), self._model()
        outcome.gradients_each = self.gradients_each
        outcome.pushed = tuple(worker.version for worker in workers)
        outcome.tally = Tally.of(workers, servers, dead)
        return outcome

    def _end_epoch(self, when: float) -> None:
        epochs = self.outcome.epochs
        epochs.append(Epoch(len(epochs) + 1, when, self._learner.measure(self._model())))


def sync_ends(dead: Sequence[int]) -> CheckFailed:
    """What is raised when workers are missing to Sync-DSGD."""
    who, them = (
        (f"worker {dead[0]}", "it") if len(dead) == 1 else (f"workers {', '.join(map(str, dead))}", "them")
    )
    return CheckFailed(f"{who} stopped answering; Sync-DSGD cannot go on without {them}")
