"""Job and outcome of a training with the parameter server, and the recorder of a run.

Shared by the event model (``events``) and the hosts of simulated hardware (``hosts``).
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
    """Training job: each worker pushes a gradient of each of its mini-batches, ``epochs`` times.

    - ``workers``, ``slots``, ``servers``: sizes of the protocol.
    - ``warm_up``: first epochs in which workers use one of their slots.
    - ``algorithm``: asynchronous (wild) or Sync-DSGD.
    - ``push_after``: when the asynchronous server pushes. Default: a server that updates and pushes in one pass
      pushes after every gradient, other servers after a scan.
    - ``receivers``: workers to which the asynchronous server pushes a row.
    - ``lr``: learning rate.
    - ``batch``: samples that determine the compute time; the gradient's samples are the learner's.
    - ``epochs``: passes over the training samples.
    - ``compute``, ``costs``: times.
    - ``model_bytes``: replaces the size of w and of gradients on links and in memory (the paper's are float64).
    - ``seed``: seed of the workers' times.
    - ``stops``: workers whose links are cut, with times in seconds.
    - ``returns``: workers that are replaced, with times in seconds.
    - ``waits_for_credit``: False lets workers overwrite gradients that were not applied, for tests.

    Raises ValueError for Sync-DSGD with more than one slot or with options of the asynchronous server. Raises
    it also for a replacement of a worker that has not stopped before, and for replacements with several
    servers.
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
    waits_for_credit: bool = True

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
            reason = "which pushes after the gradients of all"
            raise ValueError(f"push_after must be None with Sync-DSGD, {reason}, not {self.push_after.value}")
        if self.receivers is not Receivers.BARTER:
            reason = "whose rows have a gradient of every worker"
            raise ValueError(f"receivers must be barter with Sync-DSGD, {reason}, not {self.receivers.value}")

    @property
    def pushes_after_scan(self) -> bool:
        """Whether the asynchronous server pushes after a scan."""
        if self.push_after is None:
            return not self.costs.one_pass
        return self.push_after is PushAfter.SCAN

    @property
    def broadcasts(self) -> bool:
        """Whether the asynchronous server pushes every row to all workers."""
        return self.receivers is Receivers.BROADCAST

    def gradients_each(self, learner: Learner) -> int:
        """Return the number of gradients that each worker pushes."""
        return learner.batches * self.epochs

    def generator(self, worker: int) -> np.random.Generator:
        """Return the random generator of a worker's times, independent of other workers."""
        return np.random.default_rng((self.seed, worker))


@dataclass(frozen=True, slots=True)
class Span:
    """An activity of a worker, with times in seconds: ``compute``, ``push`` or ``wait`` (figures 5 and 6)."""

    worker: int
    kind: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class ServerSpan:
    """An activity of a server, with times in seconds.

    ``update``: updates w with a worker's gradient (Op1). ``push``: pushes a row to a worker until it has
    arrived (Op2). In one pass both begin together.
    """

    shard: int
    worker: int
    kind: str
    begin: float
    end: float


@dataclass
class ServerUpdate:
    """An update of a server with a worker's gradient; all times in seconds.

    - ``shard``: number of the server.
    - ``worker``: the worker that computed the gradient.
    - ``version``: version of the worker's gradient.
    - ``stored``: end of the update, when its row was in the server's memory.
    - ``arrival``: the gradient was in the server's memory.
    - ``sent``: its row could be sent.
    - ``received``: the gradient's worker had received a row with it; with Sync-DSGD, the row of the round.
    """

    shard: int
    worker: int
    version: int
    stored: float
    arrival: float = math.nan
    sent: float = math.nan
    received: float = math.nan


@dataclass(frozen=True)
class Epoch:
    """End of an epoch: the time when every server had applied its gradients, and measures of w then.

    An epoch that a dead worker leaves incomplete ends with the run.
    """

    number: int
    seconds: float
    measures: Measures | None


@dataclass
class Outcome:
    """Result of a training run; ``epochs`` ends with the run, and ``w`` is the model then.

    - ``staleness``: number of gradients, at every server, by the number of others' updates that their model
      lacked; with Sync-DSGD, whose N updates count as one, always 0.
    - ``spans``, ``server_spans``: activities of workers and servers.
    - ``updates``: all updates in order; only of simulated hardware.
    - ``start``: simulated time, in seconds, at which all other times are 0.
    - ``stopped``: workers that stopped before the servers had applied all their gradients.
    - ``gradients_each``: gradients that each worker should push.
    - ``pushed``: gradients that each worker has pushed.
    - ``applied``: gradients of each worker that each server has applied.
    """

    epochs: list[Epoch] = field(default_factory=list)
    staleness: Counter[int] = field(default_factory=Counter)
    spans: list[Span] = field(default_factory=list)
    server_spans: list[ServerSpan] = field(default_factory=list)
    updates: list[ServerUpdate] = field(default_factory=list)
    start: float = 0.0
    stopped: tuple[int, ...] = ()
    gradients_each: int = 0
    pushed: tuple[int, ...] = ()
    applied: tuple[tuple[int, ...], ...] = ()
    rereads: int = 0
    tally: Tally = field(default_factory=lambda: Tally(0, 0, 0, 0))
    w: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32), compare=False)

    @property
    def seconds(self) -> float:
        """Simulated time until the end of the last update."""
        return self.epochs[-1].seconds

    @property
    def mean_staleness(self) -> float:
        """Mean number of others' updates per gradient; 0 without gradients."""
        return sum(age * count for age, count in self.staleness.items()) / max(self.staleness.total(), 1)


#: Called after every update with the number of gradients that all servers have applied, simulated seconds, and
#: the finished epochs. In RTL, which runs in another process, seconds are NaN and there are no epochs.
Progress = Callable[[int, float, Sequence[Epoch]], None]


class Account:
    """Recorder of a run, which builds its outcome. ``model`` returns w, joined from the servers' shards."""

    def __init__(self, job: TrainingJob, learner: Learner, model: Callable[[], npt.NDArray[np.float32]]):
        self.outcome = Outcome()
        self.gradients_each = job.gradients_each(learner)
        self._job, self._learner, self._model = job, learner, model
        self._applied = [0] * job.servers
        self._end = 0.0  # seconds: end of the last update
        self._push_ends = [0.0] * job.workers  # seconds: arrival of each worker's last push

    @property
    def applied(self) -> int:
        """Number of gradients that all servers have applied."""
        return min(self._applied)

    def note(self, worker: int, kind: str, begin: float, end: float) -> None:
        """Note a worker's activity: see ``Span``. A wait begins no earlier than its last push has arrived."""
        if kind == "push":
            self._push_ends[worker] = end
        elif kind == "wait":
            begin = max(begin, self._push_ends[worker])
        if end > begin:
            self.outcome.spans.append(Span(worker, kind, begin, end))

    def note_server(self, shard: int, worker: int, kind: str, begin: float, end: float) -> None:
        """Note a server's activity: see ``ServerSpan``."""
        self.outcome.server_spans.append(ServerSpan(shard, worker, kind, begin, end))

    def update(self, shard: int, staleness: int, seconds: float) -> bool:
        """Note the end of an update at ``seconds``; return whether all servers have applied one more."""
        self.outcome.staleness[0 if self._job.algorithm is Algorithm.SYNC else staleness] += 1
        count, self._end = self.applied, max(self._end, seconds)
        self._applied[shard] += 1
        if self.applied == count:
            return False
        if self.applied % (self._learner.batches * self._job.workers) == 0:
            self._end_epoch(seconds)
        return True

    def close(
        self, workers: Sequence[Pusher], servers: Sequence[ParameterServer], dead: Sequence[int]
    ) -> Outcome:
        """End the run. ``dead`` workers count as stopped, unless all their gradients were applied.

        Raises CheckFailed if Sync-DSGD could not continue.
        """
        outcome = self.outcome
        counts = [Counter(worker for worker, _ in server.applied) for server in servers]
        outcome.applied = tuple(tuple(count[worker.number] for count in counts) for worker in workers)
        dead = [number for number in dead if min(outcome.applied[number]) < self.gradients_each]
        if self.applied < self.gradients_each * self._job.workers:
            if self._job.algorithm is Algorithm.SYNC:
                raise sync_ends(dead)
            self._end_epoch(self._end)
        outcome.stopped, outcome.w = tuple(dead), self._model()
        outcome.gradients_each = self.gradients_each
        outcome.pushed = tuple(worker.version for worker in workers)
        outcome.tally = Tally.of(workers, servers, dead)
        return outcome

    def _end_epoch(self, seconds: float) -> None:
        epochs = self.outcome.epochs
        epochs.append(Epoch(len(epochs) + 1, seconds, self._learner.measure(self._model())))


def sync_ends(dead: Sequence[int]) -> CheckFailed:
    """Return the error of a Sync-DSGD run whose ``dead`` workers have stopped."""
    workers, pronoun = (
        (f"worker {dead[0]}", "it") if len(dead) == 1 else (f"workers {', '.join(map(str, dead))}", "them")
    )
    return CheckFailed(f"{workers} stopped answering; Sync-DSGD cannot continue without {pronoun}")
