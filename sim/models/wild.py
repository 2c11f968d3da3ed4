"""An event model of the parameter server and its workers in time (docs/param-server.md).

Servers and workers are ``sim.golden.param_server``'s, bytes and bits included; this module says when each of
their steps happens. Source: RDMA-wild, section 4, algorithms 1 and 2; Sync-DSGD is section 2's.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count

import numpy as np
import numpy.typing as npt

from fanin.errors import CheckFailed
from fanin.param_server import ParamServerConfig, ServerLayout, WorkerLayout
from fanin.sim.golden.param_server import ParameterServer, Push, Tally, WorkerEndpoint
from fanin.sim.models.learning import Learner, Measures
from fanin.sim.models.wild_costs import PACKET_BYTES, Compute, Costs

#: Told behind every update how many gradients all servers have applied, and the simulated seconds.
Progress = Callable[[int, float], None]


_PARTS = 16  # of a gradient at most, between which a link may carry those of others: packets do so, too


class Algorithm(Enum):
    """WILD updates with whatever is there; SYNC waits for all workers' gradients."""

    WILD = "wild"
    SYNC = "sync"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run: each of ``workers`` pushes ``epochs`` times a gradient of each of its mini-batches.

    ``batch`` samples take time; how many there are is the learner's. ``model_bytes`` replaces the size of w and
    of gradients on links and in memory (the paper's are float64). In their first ``warm_up`` epochs workers use
    one of their slots. ``stops`` has workers that stop answering, and when. ``waits`` False lets workers
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
    one, always 0."""

    epochs: list[Epoch] = field(default_factory=list)
    staleness: Counter[int] = field(default_factory=Counter)
    spans: list[Span] = field(default_factory=list)
    stopped: tuple[int, ...] = ()
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


class _Clock:
    """Events in the order of their times, and of their making where these are equal."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), do))

    def run(self) -> None:
        while self._events:
            self.now, _, do = heapq.heappop(self._events)
            do()


class _Worker:
    """Takes the model, computes, pushes: as often as there is credit."""

    def __init__(self, run: _Run, endpoint: WorkerEndpoint):
        self.run, self.endpoint, self.number = run, endpoint, endpoint.number
        self.busy = False
        self._rng = run.job.generator(self.number)
        self._link_free = 0.0
        self._idle_since: float | None = None
        self._pushed = 0.0  # when the last push had arrived

    @property
    def gone(self) -> bool:
        return self.run.clock.now >= self.run.job.stops.get(self.number, np.inf)

    def advance(self) -> None:
        """Begin the next gradient, if there is credit for it and nothing else is being done."""
        if self.busy or self.gone or self.endpoint.version == self.run.gradients_each:
            return
        now = self.run.clock.now
        if not self.endpoint.may_push:
            self._idle_since = now if self._idle_since is None else self._idle_since
            return
        if self._idle_since is not None:
            self.run.note(self.number, "wait", max(self._idle_since, self._pushed), now)
            self._idle_since = None
        self.busy = True
        self._look(now)

    def _look(self, began: float) -> None:
        reading = self.endpoint.begin_read()

        def done() -> None:
            model = self.endpoint.end_read(reading)
            if model is None:
                self._look(began)
            else:
                self._compute(began, *model)

        self.run.clock.at(self.run.clock.now + self.run.copy_seconds, done)

    def _compute(self, began: float, w: np.ndarray, others: list[int]) -> None:
        job, clock = self.run.job, self.run.clock

        def done() -> None:
            if self.gone:
                return
            gradient = self.run.learner.gradient(self.number, self.endpoint.version, w)
            self.run.note(self.number, "compute", began, clock.now)
            for push in self.endpoint.push(gradient, others):
                clock.at(clock.now + push.shard * job.costs.post, partial(self._send, push))
            self.busy = False
            self.advance()

        clock.at(clock.now + job.compute.seconds(self.number, job.batch, self._rng), done)

    def _send(self, push: Push) -> None:
        """Through the worker's link, then the server's, in its turn; then it arrives all at once."""
        run, server = self.run, self.run.servers[push.shard]
        costs, size = run.job.costs, run.slot_bytes(push.shard)
        parts = min(math.ceil(size / PACKET_BYTES), _PARTS)
        seconds = costs.write(size) / parts
        memory = self.endpoint.memory

        def arrive() -> None:
            self._pushed = run.clock.now
            run.note(self.number, "push", began, self._pushed)
            server.write(push.remote, bytes(memory[push.local : push.local + push.length]))

        def part(number: int) -> None:
            server.link_free = max(run.clock.now, server.link_free + seconds)
            if number == parts - 1:
                run.clock.at(server.link_free + costs.arrival(size), arrive)

        began = run.clock.now
        for number in range(parts):
            self._link_free = max(began, self._link_free) + seconds
            run.clock.at(self._link_free, partial(part, number))

    def receive(self, push: Push, data: bytes, whole: bool) -> None:
        """A row, or as much of it as tells that a write has begun."""
        size = len(data) if whole else self.endpoint.config.word_bytes
        self.endpoint.memory[push.remote : push.remote + size] = data[:size]
        if whole:
            self.advance()


class _Server:
    """Scans, updates and pushes: one thing at a time."""

    def __init__(self, run: _Run, engine: ParameterServer, shard: int):
        self.run, self.engine, self.shard = run, engine, shard
        self.link_free = 0.0  # of gradients
        self.busy = False
        self._row_free = [0.0] * engine.config.rows
        self._receivers: list[int] = []

    def write(self, address: int, data: bytes) -> None:
        """Bytes of a gradient arrive."""
        self.engine.memory[address : address + len(data)] = data
        self.advance()

    def advance(self) -> None:
        """Begin to scan, if there is something new and nothing else is being done."""
        if self.busy:
            return
        one_pass = self.run.job.costs.one_pass
        all_first = self.run.job.algorithm is Algorithm.SYNC and not one_pass
        workers = range(self.engine.config.workers)
        if (all if all_first else any)(map(self.engine.fresh, workers)):
            self.busy = True
            (self._pass if one_pass else self._scan)(0)

    def _pass(self, start: int) -> None:
        """Update with what is there, from worker ``start`` on, and push each row as it is made.

        Of Sync-DSGD only the one behind a round's last gradient is pushed, from memory.
        """
        worker = self.engine.scan(start)
        if worker is None:
            self.busy = False
            return
        clock, costs = self.run.clock, self.run.job.costs
        free = self._row_free[self.engine.config.row_of(self.engine.version + 1)]
        if free > clock.now:
            clock.at(free, lambda: self._pass(start))
            return
        at_once = self.run.job.algorithm is Algorithm.WILD
        seconds = self.run.update_seconds(self.shard)
        if at_once:
            seconds = max(seconds, costs.write(self.run.row_bytes(self.shard)))
            self._push(self._update(worker, seconds), clock.now, seconds)
        else:
            self._receivers.append(self._update(worker, seconds))
        if len(self._receivers) == self.engine.config.workers:
            self._push_round(clock.now + seconds + costs.landing)
        clock.at(clock.now + max(seconds, costs.turnaround), lambda: self._pass(worker + 1))

    def _scan(self, start: int) -> None:
        """Algorithm 1, lines 10 to 21: from worker ``start`` on update with what is new, then push to all."""
        clock = self.run.clock
        for worker in range(start, self.engine.config.workers):
            if self.engine.fresh(worker):
                seconds = self.run.update_seconds(self.shard)
                self._receivers.append(self._update(worker, seconds))
                clock.at(clock.now + seconds, partial(self._scan, worker + 1))
                return
        seconds = self.run.job.costs.write(self.run.row_bytes(self.shard))
        for turn, worker in enumerate(self._receivers):
            self._push(worker, clock.now + turn * seconds, seconds)
        clock.at(clock.now + len(self._receivers) * seconds, self._rest)
        self._receivers = []

    def _push_round(self, begin: float) -> None:
        """The row to all, a packet to each in turn: all are on the way for as long as all of them take."""
        costs, size, others = self.run.job.costs, self.run.row_bytes(self.shard), len(self._receivers) - 1
        packets = math.ceil(size / PACKET_BYTES)
        seconds = costs.write(size) + packets * costs.readback
        packet = seconds / packets
        for turn, worker in enumerate(self._receivers):
            self._push(worker, begin + turn * packet, seconds + others * (seconds - packet))
        self._receivers = []

    def _rest(self) -> None:
        self.busy = False
        self.advance()

    def _update(self, worker: int, seconds: float) -> int:
        """Whose gradient it was."""
        found = self.engine.apply(worker)
        self.run.applied(self.shard, found.staleness, self.run.clock.now + seconds)
        return worker

    def _push(self, worker: int, begin: float, seconds: float) -> None:
        """The model row from ``begin`` on; it is kept until its acknowledgement must be back."""
        clock, costs = self.run.clock, self.run.job.costs
        latency = costs.arrival(self.run.row_bytes(self.shard))
        push, to = self.engine.push(worker), self.run.workers[worker]
        data = bytes(self.engine.memory[push.local : push.local + push.length])
        arrived = begin + seconds + latency
        self._row_free[self.engine.config.row_of(self.engine.version)] = arrived + costs.latency
        clock.at(begin + latency, lambda: to.receive(push, data, whole=False))
        clock.at(arrived, lambda: to.receive(push, data, whole=True))


class _Run:
    """A job in progress."""

    def __init__(self, job: Job, learner: Learner, progress: Progress | None):
        self.job, self.learner, self.progress = job, learner, progress
        self.config = ParamServerConfig(
            parameters=learner.parameters, workers=job.workers, slots=job.slots, servers=job.servers
        )
        self.clock = _Clock()
        self.outcome = Outcome()
        self.gradients_each = learner.batches * job.epochs
        initial = learner.initial().astype(np.float32)
        cuts = [self.config.shard_start(shard) for shard in range(1, job.servers)]
        engines = [
            ParameterServer(ServerLayout(self.config, shard), rate=job.rate, initial=part)
            for shard, part in enumerate(np.split(initial, cuts))
        ]
        self.servers = [_Server(self, engine, shard) for shard, engine in enumerate(engines)]
        layout = WorkerLayout(self.config)
        self.workers = [
            _Worker(self, WorkerEndpoint(number, layout, initial, job.waits, job.warm_up * learner.batches))
            for number in range(job.workers)
        ]
        layouts = [engine.layout for engine in engines]
        self._row_bytes = [self._bytes(each.shard, each.row(0).size) for each in layouts]
        self._slot_bytes = [self._bytes(each.shard, each.slot(0, 0).size) for each in layouts]
        self._applied = [0] * job.servers
        self._ended = 0.0  # the last update

    def run(self) -> Outcome:
        for worker in self.workers:
            worker.advance()
        self.clock.run()
        gone = tuple(worker.number for worker in self.workers if worker.gone)
        if self.job.algorithm is Algorithm.SYNC and min(self._applied) < self._expected:
            raise sync_ends(gone)
        if min(self._applied) < self._expected:
            self._end_epoch(self._ended)
        self.outcome.stopped, self.outcome.w = gone, self._w
        endpoints = [worker.endpoint for worker in self.workers]
        self.outcome.rereads = sum(endpoint.rereads for endpoint in endpoints)
        self.outcome.tally = Tally.of(endpoints, [server.engine for server in self.servers], gone)
        return self.outcome

    @property
    def _expected(self) -> int:
        return self.gradients_each * self.job.workers

    @property
    def copy_seconds(self) -> float:
        return self.job.costs.copy * sum(map(self.row_bytes, range(self.job.servers)))

    def update_seconds(self, shard: int) -> float:
        return self.job.costs.update * self.row_bytes(shard)

    def row_bytes(self, shard: int) -> float:
        return self._row_bytes[shard]

    def slot_bytes(self, shard: int) -> float:
        return self._slot_bytes[shard]

    def _bytes(self, shard: int, size: int) -> float:
        if self.job.model_bytes is None:
            return size
        return self.job.model_bytes * self.config.shard_values(shard) / self.config.parameters

    def note(self, worker: int, kind: str, begin: float, end: float) -> None:
        if end > begin:
            self.outcome.spans.append(Span(worker, kind, begin, end))

    def applied(self, shard: int, staleness: int, when: float) -> None:
        """An update ends; an epoch does when every server has had so many."""
        self.outcome.staleness[0 if self.job.algorithm is Algorithm.SYNC else staleness] += 1
        before, self._ended = min(self._applied), max(self._ended, when)
        self._applied[shard] += 1
        done = min(self._applied)
        if self.progress and done > before:
            self.progress(done, when)
        if done > before and done % (self.learner.batches * self.job.workers) == 0:
            self._end_epoch(when)

    def _end_epoch(self, when: float) -> None:
        epochs = self.outcome.epochs
        epochs.append(Epoch(len(epochs) + 1, when, self.learner.measure(self._w)))

    @property
    def _w(self) -> npt.NDArray[np.float32]:
        """As the servers have it now, put together."""
        return np.concatenate([server.engine.row.w for server in self.servers])


def sync_ends(gone: Sequence[int]) -> CheckFailed:
    """What is raised when workers are missing to Sync-DSGD."""
    names = ", ".join(map(str, gone))
    return CheckFailed(f"worker {names} stopped answering; Sync-DSGD cannot go on without it")


def run(job: Job, learner: Learner, progress: Progress | None = None) -> Outcome:
    """Carry a job out. Raises ValueError for sizes that do not fit, CheckFailed with the names of the workers
    without which Sync-DSGD cannot go on."""
    return _Run(job, learner, progress).run()
