"""The workers of an asynchronous training as live hosts: they compute in NumPy, and all else is RTL."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from fanin.errors import CheckFailed
from fanin.hdl.net.rdma.driver import RdmaDriver
from fanin.param_server import (
    MODEL_BUFFERS,
    ParamServerConfig,
    RowLayout,
    ServerLayout,
    WorkerLayout,
)
from fanin.rdma import Ending, Write
from fanin.sim.cosim.live import Board, Then
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.rdma import post, take_completion
from fanin.sim.cosim.run import RunResult
from fanin.sim.golden.param_server import ParameterServer, Push, Tally, WorkerEndpoint
from fanin.sim.models.learning import Learner
from fanin.sim.models.wild import Algorithm, Epoch, Job, Outcome, Span, sync_ends

SERVER_KEY = 0x2000  # and a worker: the key of its gradients at a server
_PS = 1e-12


@dataclass
class Applied:
    """An update: at which server, whose gradient, and in seconds when its row had been made.

    ``arrived`` is when its worker had a row that has it: of Sync-DSGD, that of the whole round.
    """

    shard: int
    worker: int
    version: int
    made: float
    arrived: float = math.nan


@dataclass
class WildRun:
    """What came of a run: as the event model tells it, every update in its order, and the simulator's own."""

    outcome: Outcome
    updates: list[Applied] = field(default_factory=list)
    raw: RunResult = field(default_factory=RunResult)


class _Server:
    """What a server must have done, by the rows that it has made: the golden one does the same."""

    def __init__(self, hosts: Hosts, shard: int, initial: npt.NDArray[np.float32]):
        self.hosts, self.shard = hosts, shard
        self.golden = ParameterServer(ServerLayout(hosts.sizes, shard), rate=hosts.job.rate, initial=initial)
        self.gradients: dict[tuple[int, int], bytes] = {}  # sent, not applied yet: by worker and version
        self._round: list[Applied] = []  # updates that have not been pushed
        self._due: list[deque[tuple[bytes, Push, Applied]]]  # rows on the way: by worker
        self._due = [deque() for _ in range(hosts.sizes.workers)]
        for number in range(hosts.sizes.rows):
            row = self.golden.layout.row(number)
            hosts.board.watch(hosts.node_of(shard), row.base + row.size - 1, partial(self._made, row))

    def holds(self, worker: int, version: int) -> bool:
        """Whether a worker's gradient has been applied, and waits for others until it is pushed."""
        return any((update.worker, update.version) == (worker, version) for update in self._round)

    def _made(self, layout: RowLayout) -> None:
        """A row is in memory. Raises CheckFailed unless it is what the golden server makes."""
        golden, hosts = self.golden, self.hosts
        memory = hosts.board.memory(hosts.node_of(self.shard))
        row = memory[layout.base : layout.base + layout.size].tobytes()
        name = f"server {self.shard}, version {golden.version + 1}"
        lgvnum = np.frombuffer(row, "<u4", hosts.sizes.workers, layout.lgvnum - layout.base)
        consumed = np.flatnonzero(lgvnum != golden.row.lgvnum)
        if len(consumed) != 1:
            raise CheckFailed(f"{name}: LGVnum of {len(consumed)} workers has changed")
        worker = int(consumed[0])
        gradient = int(lgvnum[worker])
        data = self.gradients.pop((worker, gradient), None)
        if data is None:
            raise CheckFailed(
                f"{name} for worker {worker}: gradient {gradient} was not sent, or has been applied before"
            )
        slot = golden.layout.slot(worker, hosts.sizes.slot_of(gradient))
        golden.memory[slot.base : slot.base + slot.size] = data
        found = golden.apply(worker)
        place = golden.row.layout
        if row != golden.memory[place.base : place.base + place.size]:
            raise CheckFailed(f"{name} for worker {worker}: the row differs from the golden server's")
        update = Applied(self.shard, worker, gradient, hosts.seconds)
        self._round.append(update)
        if len(self._round) == hosts.round:
            for each in self._round:
                self._due[each.worker].append((row, golden.push(each.worker), each))
            self._round = []
        hosts.applied(found.staleness, update)

    def arrived(self, worker: int, address: int, row: bytes) -> None:
        """A row that a worker has got there. Raises CheckFailed unless it is its next one of those made."""
        if not self._due[worker]:
            raise CheckFailed(f"server {self.shard}: worker {worker} has got a row that was not made for it")
        expected, push, update = self._due[worker].popleft()
        if (row, address) != (expected, push.remote):
            raise CheckFailed(f"server {self.shard}: worker {worker} has got another row than was made for it")
        update.arrived = self.hosts.seconds


class _Worker:
    """Takes the model, computes, pushes: as often as there is credit."""

    def __init__(self, hosts: Hosts, number: int):
        self.hosts, self.number, self.board = hosts, number, hosts.board
        layout = WorkerLayout(hosts.sizes)
        job = hosts.job
        self.endpoint = WorkerEndpoint(
            number,
            layout,
            hosts.initial,
            job.waits,
            job.warm_up * hosts.learner.batches,
            memory=self.board.memory(number),
        )
        self._rng = job.generator(number)
        self.busy = False
        self.done = False
        self._idle_since: float | None = None
        self._pushed = 0.0  # when the last push had arrived
        self._untaken: list[int] = []  # versions of writes whose completions were not taken
        for shard in range(hosts.sizes.servers):
            for buffer in range(MODEL_BUFFERS):
                row = layout.buffer(shard, buffer)
                self.board.watch(number, row.base + row.size - 1, partial(self._row, shard, row))

    @property
    def gone(self) -> bool:
        return self.hosts.seconds >= self.hosts.job.stops.get(self.number, np.inf)

    @property
    def idle(self) -> bool:
        """Whether nothing of this worker is under way: all is back, or waits behind the barrier."""
        version = self.endpoint.version
        return self.endpoint.consumed == version or all(
            server.holds(self.number, version) for server in self.hosts.servers
        )

    def advance(self) -> None:
        """Begin the next gradient, if there is credit for it and nothing else is being done."""
        hosts, endpoint, now = self.hosts, self.endpoint, self.hosts.seconds
        self.done = self.gone or endpoint.consumed >= hosts.gradients_each
        if self.busy or self.gone or endpoint.version == hosts.gradients_each:
            return
        if not endpoint.may_push:
            self._idle_since = now if self._idle_since is None else self._idle_since
            return
        if self._idle_since is not None:
            hosts.note(self.number, "wait", max(self._idle_since, self._pushed), now)
            self._idle_since = None
        self.busy = True
        self._look(now)

    def _row(self, shard: int, layout: RowLayout) -> None:
        row = bytes(self.endpoint.memory[layout.base : layout.base + layout.size])
        self.hosts.servers[shard].arrived(self.number, layout.base, row)
        self.advance()

    def _look(self, began: float) -> None:
        reading = self.endpoint.begin_read()

        def done() -> None:
            model = self.endpoint.end_read(reading)
            if model is None:
                self._look(began)
            else:
                self._compute(began, *model)

        self.hosts.after(self.hosts.copy_seconds, done)

    def _compute(self, began: float, w: npt.NDArray[np.float32], others: list[int]) -> None:
        hosts = self.hosts

        def done() -> None:
            if self.gone:
                self.advance()
                return
            gradient = hosts.learner.gradient(self.number, self.endpoint.version, w)
            hosts.note(self.number, "compute", began, hosts.seconds)
            self._push(list(self.endpoint.push(gradient, others)))
            self.busy = False
            self.advance()

        hosts.after(hosts.job.compute.seconds(self.number, hosts.job.batch, self._rng), done)

    def _push(self, pushes: list[Push]) -> None:
        """One write to each server. What has been consumed completes: that is taken first, and at once."""
        hosts, program, version = self.hosts, HostProgram(), self.endpoint.version
        taken = [old for old in self._untaken if old <= self.endpoint.consumed]
        self._untaken = [*(old for old in self._untaken if old not in taken), version]
        for _ in range(len(taken) * hosts.sizes.servers):
            take_completion(hosts.driver, program)
        for push in pushes:
            data = bytes(self.endpoint.memory[push.local : push.local + push.length])
            hosts.servers[push.shard].gradients[self.number, version] = data
            tag = version % (1 << 16)
            key = SERVER_KEY + self.number
            post(hosts.driver, program, push.shard, Write(tag, push.local, push.remote, key, push.length))
        began = hosts.seconds
        hosts.pushing[self.number, version] = (began, len(pushes))
        self.board.run(self.number, program, self._posted)

    def _posted(self, reads: list[int]) -> None:
        """The completions that were read must be good."""
        for word in reads:
            driver = self.hosts.driver
            said = driver.completed_of(driver.take_completion().results([word]))
            if said.ending is not Ending.DONE:
                raise CheckFailed(f"worker {self.number}: a gradient's write ended with {said.ending.name}")

    def arrived(self, version: int, began: float) -> None:
        """A gradient is at all servers."""
        self._pushed = self.hosts.seconds
        self.hosts.note(self.number, "push", began, self._pushed)


class Hosts:
    """All workers; made in the simulator's process."""

    def __init__(
        self,
        board: Board,
        *,
        job: Job,
        learner: Learner,
        sizes: ParamServerConfig,
        initial: npt.NDArray[np.float32],
        driver: RdmaDriver,
        first_server: int,
    ):
        self.board, self.job, self.learner, self.sizes = board, job, learner, sizes
        self.initial, self.driver, self._first_server = initial, driver, first_server
        self.gradients_each = learner.batches * job.epochs
        #: Gradients behind which a server pushes.
        self.round = sizes.workers if job.algorithm is Algorithm.SYNC else 1
        self.pushing: dict[tuple[int, int], tuple[float, int]] = {}  # when begun, and servers that lack it
        self.updates: list[Applied] = []
        self._outcome = Outcome()
        self._applied = [0] * sizes.servers
        self._began = board.now
        self.workers: list[_Worker] = []
        cuts = [sizes.shard_start(shard) for shard in range(1, sizes.servers)]
        self.servers = [_Server(self, shard, part) for shard, part in enumerate(np.split(initial, cuts))]

    def start(self) -> None:
        """All workers begin with w as it is given."""
        self.workers = [_Worker(self, number) for number in range(self.sizes.workers)]
        for shard, number, slot, address in self._gvnums():
            self.board.watch(self.node_of(shard), address, partial(self._gradient_arrived, number, slot))
        for worker in self.workers:
            worker.advance()
            if stop := self.job.stops.get(worker.number):
                self.after(stop, partial(self._stop, worker))

    def _stop(self, worker: _Worker) -> None:
        if self.job.algorithm is Algorithm.SYNC and worker.endpoint.version < self.gradients_each:
            raise sync_ends([worker.number])
        worker.advance()

    @property
    def done(self) -> bool:
        """All that was pushed has been applied, and has come back."""
        return bool(self.workers) and all(worker.done and worker.idle for worker in self.workers)

    @property
    def progress(self) -> int:
        """Updates that all servers have made."""
        return min(self._applied)

    def may_skip(self) -> bool:
        """While all workers compute, nothing is on its way."""
        return all(worker.idle or worker.gone for worker in self.workers)

    def result(self) -> WildRun:
        """What came of it."""
        outcome = self._outcome
        gone = tuple(worker.number for worker in self.workers if worker.gone)
        endpoints = [worker.endpoint for worker in self.workers]
        goldens = [server.golden for server in self.servers]
        if min(self._applied) < self.gradients_each * self.sizes.workers:
            self._end_epoch(self.seconds)
        outcome.stopped, outcome.w = gone, self._w
        outcome.rereads = sum(endpoint.rereads for endpoint in endpoints)
        outcome.tally = Tally.of(endpoints, goldens, gone)
        return WildRun(outcome, self.updates)

    @property
    def seconds(self) -> float:
        """Simulated, since the start."""
        return (self.board.now - self._began) * _PS

    def node_of(self, shard: int) -> int:
        """A server's number in the simulation."""
        return self._first_server + shard

    @property
    def copy_seconds(self) -> float:
        """Of taking the model out of its buffers."""
        rows = (RowLayout(self.sizes, shard, 0).size for shard in range(self.sizes.servers))
        return self.job.costs.copy * sum(rows)

    def after(self, seconds: float, then: Then) -> None:
        """Call ``then`` so much later."""
        self.board.at(self.board.now + round(seconds / _PS), then)

    def note(self, worker: int, kind: str, begin: float, end: float) -> None:
        """What a worker did."""
        if end > begin:
            self._outcome.spans.append(Span(worker, kind, begin, end))

    def applied(self, staleness: int, update: Applied) -> None:
        """An update's row is made; an epoch ends when every server has made so many."""
        self._outcome.staleness[0 if self.job.algorithm is Algorithm.SYNC else staleness] += 1
        self.updates.append(update)
        before = min(self._applied)
        self._applied[update.shard] += 1
        done = min(self._applied)
        if done > before and done % (self.learner.batches * self.sizes.workers) == 0:
            self._end_epoch(update.made)

    def _end_epoch(self, when: float) -> None:
        epochs = self._outcome.epochs
        epochs.append(Epoch(len(epochs) + 1, when, self.learner.measure(self._w)))

    @property
    def _w(self) -> npt.NDArray[np.float32]:
        return np.concatenate([server.golden.row.w for server in self.servers])

    def _gvnums(self) -> Iterator[tuple[int, int, int, int]]:
        """Shard, worker, slot, and the address of a gradient's last byte there."""
        for shard in range(self.sizes.servers):
            layout = ServerLayout(self.sizes, shard)
            for worker in range(self.sizes.workers):
                for slot in range(self.sizes.slots):
                    place = layout.slot(worker, slot)
                    yield shard, worker, slot, place.base + place.size - 1

    def _gradient_arrived(self, worker: int, slot: int) -> None:
        """The newest one that takes this slot is at one server more."""
        versions = [v for w, v in self.pushing if w == worker and self.sizes.slot_of(v) == slot]
        if not versions:
            return
        version = min(versions)
        began, missing = self.pushing.pop((worker, version))
        if missing > 1:
            self.pushing[worker, version] = (began, missing - 1)
        else:
            self.workers[worker].arrived(version, began)
