"""A training over the ring: the job, what it leaves, and the runs in binary32 and binary64 beside it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fanin.base.errors import CheckFailed
from fanin.golden.mlp import Floats
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.golden.groups import exchange
from fanin.ring.groups import BARRIER, Groups
from fanin.sim.learning.learner import Measures
from fanin.sim.learning.references import References, compare
from fanin.sim.learning.replica import DataParallel, Dataset, Replica, State, measure
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.rounds import RoundFigures
from fanin.sim.ring.schedule import Schedule, Tell, Times, Worker


@dataclass(frozen=True, kw_only=True)
class RingTraining:
    """What is trained, on which nodes, and what a host does when.

    ``stops`` says which nodes' links are cut, and when, in simulated seconds. With ``groups``, whose workers
    the nodes are, an all-reduce is an exchange of theirs; ``barrier`` is what their hosts take between rounds,
    in seconds. Raises ValueError for groups of another number of workers.
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
        """Ring nodes: the workers, and the aggregators of groups."""
        return self.groups.nodes if self.groups else self.training.nodes

    def reducer(self, config: RingConfig) -> Callable[[Sequence[Floats]], Floats]:
        """The golden model of its all-reduce with these sizes and this codec."""
        if self.groups is None:
            return functools.partial(all_reduce, config=config)
        return functools.partial(exchange, config=config, plan=self.groups.plan)


@dataclass(frozen=True)
class Epoch:
    """When the last node had made its last step of an epoch, and how good the model was then."""

    number: int
    seconds: float
    measures: Measures
    state: State = field(compare=False, repr=False)


@dataclass
class Outcome:
    """What a run leaves; ``times`` and ``counters`` are per worker, without counters on a model.

    ``rounds``: of exchanges in groups at simulated nodes, over the whole run. Times count from ``began``, in
    seconds of the simulation.
    """

    epochs: list[Epoch]
    times: list[Times]
    counters: list[dict[str, int]]
    rounds: list[RoundFigures] = field(default_factory=list)
    began: float = 0.0

    @property
    def state(self) -> State:
        """The last one."""
        return self.epochs[-1].state

    @property
    def seconds(self) -> float:
        """Simulated time of the run."""
        return max(times.steps[-1] for times in self.times)

    @property
    def step_seconds(self) -> float:
        """The mean time of an iteration, at node 0."""
        steps = self.times[0].steps
        return steps[-1] / len(steps)


@dataclass(frozen=True)
class Step:
    """A node's replica behind a step: how many it has made, its digest, and of node 0 behind an epoch, all."""

    number: int
    digest: bytes
    state: State | None


class Learning:
    """All nodes' replicas in one run: :class:`fanin.sim.ring.hosts.Learners`. Goes on from ``state``.

    ``progress`` gets the steps of the run that all have made.
    Raises CheckFailed, during the run, where replicas are not equal after a step.
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
        self._now: Callable[[], float] = lambda: 0.0
        self._tell: Tell = self.told

    @property
    def counts(self) -> list[int]:
        """Values of each layer."""
        return self.job.training.network.counts

    @property
    def steps(self) -> int:
        """Steps that the run has."""
        return self.job.training.epochs * self.data.steps - self.first_step

    def workers(self, now: Callable[[], float], tell: Tell | None = None) -> list[Worker]:
        """Each node's program."""
        self._now, self._tell = now, tell or self.told
        return [
            Worker(
                replica,
                self.counts,
                batch=self.job.training.batch,
                profile=self.job.profile,
                schedule=self.job.schedule,
                now=now,
            )
            for replica in self._replicas
        ]

    def result(self) -> list[Epoch]:
        """The epochs that have ended."""
        return self._epochs

    def ended(self, replica: Replica) -> None:
        """A node has made a step."""
        state = replica.state
        kept = state.copy() if replica.node == 0 and state.step % self.data.steps == 0 else None
        self._tell(replica.node, Step(state.step, _digest(state), kept))

    def told(self, node: int, what: Step) -> None:
        """A node has made a step: when all have, their weights are compared."""
        digests = self._digests.setdefault(what.number, {})
        digests[node] = what.digest
        if what.state:
            self._state = what.state
        if len(digests) < len(self._replicas):
            return
        del self._digests[what.number]
        if other := [node for node in sorted(digests) if digests[node] != digests[0]]:
            raise CheckFailed(f"node {other[0]} has other weights than node 0 behind step {what.number - 1}")
        self._progress(what.number - self.first_step)
        if what.number % self.data.steps == 0:
            measures = measure(self.job.training, self.data, self._state.parameters)
            self._epochs.append(Epoch(what.number // self.data.steps, self._now(), measures, self._state))


class _Replica(Replica):
    """One that says when it has made a step."""

    def __init__(self, learning: Learning, job: DataParallel, data: Dataset, node: int, state: State):
        super().__init__(job, data, node, state)
        self._learning = learning

    def end_step(self) -> None:
        super().end_step()
        self._learning.ended(self)


def _digest(state: State) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for values in state.parameters + state.velocities:
        found.update(values.tobytes())
    return found.digest()


def references(job: RingTraining, data: Dataset, state: State | None = None) -> References:
    """Train as the job says, in NumPy, three times; on from a state, which binary64 takes as it is."""
    lanes = RingConfig(lanes=job.config.lanes)
    plain = None if job.config.codec is None else job.reducer(lanes)
    return compare(job.training, data, job.reducer(job.config), plain, state=state)
