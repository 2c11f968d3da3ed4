"""Training over the ring: the job, its outcome, and reference runs in binary32 and binary64."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fanin.base.errors import CheckFailed
from fanin.codec.golden.rounding import derived_seed
from fanin.golden.mlp import Floats
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.golden.groups import exchanges
from fanin.ring.golden.random_bits import RandomBits
from fanin.ring.groups import BARRIER, Groups
from fanin.sim.learning.learner import Measures
from fanin.sim.learning.references import References, compare
from fanin.sim.learning.replica import DataParallel, Dataset, Replica, State, measure
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.rounds import RoundFigures
from fanin.sim.ring.schedule import Report, Schedule, Times, Worker


@dataclass(frozen=True, kw_only=True)
class RingTraining:
    """A training job: model, nodes, and the hosts' schedule.

    - ``stops``: nodes whose links are cut, with times in simulated seconds.
    - ``groups``: groups of the nodes as workers; an all-reduce is then an exchange in groups.
    - ``barrier``: seconds between rounds of an exchange in groups.

    Raises ValueError for groups with another number of workers.
    """

    training: DataParallel
    config: RingConfig
    schedule: Schedule = field(default_factory=Schedule)
    profile: WorkerProfile = field(default_factory=WorkerProfile)
    stops: Mapping[int, float] = field(default_factory=dict)
    groups: Groups | None = None
    barrier: float = BARRIER

    def __post_init__(self) -> None:
        if self.groups:
            self.groups.check_workers(self.training.nodes)

    @property
    def nodes(self) -> int:
        """Number of ring nodes: the workers, and the aggregators of groups."""
        return self.groups.nodes if self.groups else self.training.nodes

    @property
    def rounding_seed(self) -> int:
        """Seed of the random bits of stochastic rounding."""
        return derived_seed(1, self.training.seed)

    def bits(self, step: int) -> RandomBits:
        """Return the random bits of a ring's nodes after ``step`` steps of the training."""
        counts = self.training.network.counts
        return RandomBits(
            self.rounding_seed, step * sum(self.config.padded_values(count, self.nodes) for count in counts)
        )

    def first_job(self, step: int) -> int:
        """Return the number of the job of groups that begins after ``step`` steps of the training."""
        return step * self.training.network.layers * len(self.groups.plan.rounds) if self.groups else 0

    def reducer(self, config: RingConfig, step: int = 0) -> Callable[[Sequence[Floats]], Floats]:
        """Return the golden model of the job's all-reduces, with the sizes and codec of ``config``.

        The model must be called for all of them, in order, from the first one after ``step`` steps on.
        """
        if self.groups is None:
            return functools.partial(all_reduce, config=config, bits=self.bits(step))
        return exchanges(config, self.groups.plan, seed=self.rounding_seed, first_job=self.first_job(step))


@dataclass(frozen=True)
class Epoch:
    """End of an epoch: the time of the last node's last step, and the model's measures and state then."""

    number: int
    seconds: float
    measures: Measures
    state: State = field(compare=False, repr=False)


@dataclass
class Outcome:
    """Result of a training run.

    - ``times``: per worker.
    - ``counters``: per worker; empty on the event model.
    - ``rounds``: figures of exchanges in groups at simulated nodes, over the whole run.
    - ``start``: simulated time, in seconds, at which all other times are 0.
    """

    epochs: list[Epoch]
    times: list[Times]
    counters: list[dict[str, int]]
    rounds: list[RoundFigures] = field(default_factory=list)
    start: float = 0.0

    @property
    def state(self) -> State:
        """State after the last epoch."""
        return self.epochs[-1].state

    @property
    def seconds(self) -> float:
        """Simulated time of the run."""
        return max(times.steps[-1] for times in self.times)

    @property
    def step_seconds(self) -> float:
        """Mean time of an iteration at node 0, in seconds."""
        steps = self.times[0].steps
        return steps[-1] / len(steps)


@dataclass(frozen=True)
class Step:
    """Event: a node has finished a step.

    - ``number``: steps since the start of training.
    - ``digest``: hash of weights and velocities.
    - ``state``: state of node 0 after an epoch, otherwise None.
    """

    number: int
    digest: bytes
    state: State | None


class Learning:
    """All nodes' replicas in one run, which continue from ``state``: :class:`fanin.sim.ring.schedule.Learners`.

    ``progress`` is called with the number of steps that all nodes have made. Raises CheckFailed during the run
    if replicas differ after a step.
    """

    def __init__(
        self,
        job: RingTraining,
        data: Dataset,
        state: State,
        progress: Callable[[int], None] = lambda steps: None,
    ):
        self.job, self.data, self._progress = job, data, progress
        self.first_step = state.step
        self._replicas = [
            _Replica(self, job.training, data, node, state.copy()) for node in range(job.training.nodes)
        ]
        self._digests: dict[int, dict[int, bytes]] = {}
        self._epochs: list[Epoch] = []
        self._clock: Callable[[], float] = lambda: 0.0
        self._report: Report = self.handle

    @property
    def counts(self) -> list[int]:
        """Values of each layer."""
        return self.job.training.network.counts

    @property
    def steps(self) -> int:
        """Number of steps of the run."""
        return self.job.training.epochs * self.data.steps - self.first_step

    def workers(self, clock: Callable[[], float], report: Report | None = None) -> list[Worker]:
        """Return each node's program."""
        self._clock, self._report = clock, report or self.handle
        return [
            Worker(
                replica,
                self.counts,
                batch=self.job.training.batch,
                profile=self.job.profile,
                schedule=self.job.schedule,
                clock=clock,
            )
            for replica in self._replicas
        ]

    def result(self) -> list[Epoch]:
        """Return the finished epochs."""
        return self._epochs

    def report_step(self, replica: Replica) -> None:
        """Report the end of a node's step to node 0."""
        state = replica.state
        epoch_state = state.copy() if replica.node == 0 and state.step % self.data.steps == 0 else None
        self._report(replica.node, Step(state.step, _digest(state), epoch_state))

    def handle(self, node: int, event: Step) -> None:
        """Handle a node's step; when all nodes have made it, compare their weights."""
        digests = self._digests.setdefault(event.number, {})
        digests[node] = event.digest
        if event.state:
            self._state = event.state
        if len(digests) < len(self._replicas):
            return
        del self._digests[event.number]
        if different := [node for node in sorted(digests) if digests[node] != digests[0]]:
            raise CheckFailed(
                f"node {different[0]} has other weights than node 0 after step {event.number - 1}"
            )
        self._progress(event.number - self.first_step)
        if event.number % self.data.steps == 0:
            measures = measure(self.job.training, self.data, self._state.parameters)
            self._epochs.append(Epoch(event.number // self.data.steps, self._clock(), measures, self._state))


class _Replica(Replica):
    """A replica that reports each step to ``Learning``."""

    def __init__(self, learning: Learning, job: DataParallel, data: Dataset, node: int, state: State):
        super().__init__(job, data, node, state)
        self._learning = learning

    def end_step(self) -> None:
        super().end_step()
        self._learning.report_step(self)


def _digest(state: State) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for values in state.parameters + state.velocities:
        digest.update(values.tobytes())
    return digest.digest()


def references(job: RingTraining, data: Dataset, state: State | None = None) -> References:
    """Train the job's model in NumPy three times from a state: with the codec, without it, in binary64."""
    lanes = RingConfig(lanes=job.config.lanes)
    step = state.step if state else 0
    uncompressed = None if job.config.codec is None else job.reducer(lanes)
    return compare(job.training, data, job.reducer(job.config, step), uncompressed, state=state)
