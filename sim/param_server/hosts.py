"""The workers of an asynchronous training as live hosts: they compute in NumPy, and all else is RTL."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from fanin.errors import CheckFailed
from fanin.golden.param_server import ParameterServer, Push, WorkerEndpoint
from fanin.hdl.bus.register_map import WORD_BITS
from fanin.host.driver import Batch
from fanin.host.param_server import ParamServerDriver
from fanin.host.rdma import RdmaDriver
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
from fanin.sim.cosim.run import RunResult
from fanin.sim.learning.learner import Learner
from fanin.sim.param_server.scans import ScannedRows
from fanin.sim.param_server.training import (
    Account,
    Algorithm,
    Applied,
    Outcome,
    PushAfter,
    TrainingJob,
    sync_ends,
)
from fanin.sim.param_server.worker import Worker
from fanin.sim.rdma.cosim import post, take_completion

SERVER_KEY = 0x2000  # and a worker: the key of its gradients at a server
_PS_IN_A_SECOND = 10**12


@dataclass
class WildRun:
    """The result of a run: as the event model's, and the simulator's own."""

    outcome: Outcome
    raw: RunResult = field(default_factory=RunResult)

    @property
    def updates(self) -> list[Applied]:
        """Every one, in their order."""
        return self.outcome.updates


class _Server:
    """Follows a server by the rows that it makes: the golden one applies the same gradients."""

    def __init__(self, hosts: Hosts, shard: int, initial: npt.NDArray[np.float32]):
        self.hosts, self.shard = hosts, shard
        self.golden = ParameterServer(
            ServerLayout(hosts.sizes, shard),
            rate=hosts.job.rate,
            initial=initial,
            broadcast=hosts.job.broadcasts,
        )
        self.gradients: dict[tuple[int, int], bytes] = {}  # sent, not applied yet: by worker and version
        self._round: list[Applied] = []  # updates that have not been pushed
        self._scans = ScannedRows(self.golden, broadcast=hosts.job.broadcasts) if hosts.scans else None
        self._last_made = 0.0  # when the last update's row was there
        self._due: list[deque[tuple[bytes, Push, Applied]]]  # rows in flight: by worker
        self._due = [deque() for _ in range(hosts.sizes.workers)]
        for number in range(hosts.sizes.rows):
            row = self.golden.layout.row(number)
            hosts.board.watch(hosts.node_of(shard), row.base + row.size - 1, partial(self._made, row))

    def holds(self, worker: int, version: int) -> bool:
        """Whether a worker's gradient has been applied, and its row waits for the round's other gradients."""
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
        came = hosts.came.pop((self.shard, worker, hosts.sizes.slot_of(gradient)), math.nan)
        began, self._last_made = max(self._last_made, came), hosts.seconds
        hosts.account.note_server(self.shard, worker, "update", began, hosts.seconds)
        update = Applied(self.shard, worker, gradient, hosts.seconds, came)
        add = self._scans.made if self._scans else partial(self._add_to_round, row=row, began=began)
        for receiver in add(update):
            hosts.workers[receiver].watch()
        hosts.applied(found.staleness, update)

    def _add_to_round(self, update: Applied, row: bytes, began: float) -> Sequence[int]:
        """The round's last row is due to its workers, or to all. Returns to whom a row is due now."""
        golden, hosts = self.golden, self.hosts
        self._round.append(update)
        if len(self._round) < hosts.round:
            return ()
        for each in self._round:
            each.left = began if hosts.one_receiver else hosts.seconds
        own = {each.worker: each for each in self._round}
        receivers = range(hosts.sizes.workers) if hosts.job.broadcasts else list(own)
        for receiver in receivers:
            self._due[receiver].append((row, golden.push(receiver), own.get(receiver, update)))
        self._round = []
        return receivers

    def owes(self, worker: int) -> bool:
        """Whether a row is on its way to a worker, or will be when a scan has ended."""
        return self._scans.owes(worker) if self._scans else bool(self._due[worker])

    def check(self, dead: Container[int]) -> None:
        """At the end of a run, with some workers ``dead``. Raises CheckFailed for rows that no scan made."""
        if self._scans:
            self._scans.check(dead)

    def arrived(self, worker: int, address: int, row: bytes) -> None:
        """A worker has received a row. Raises CheckFailed unless it is the next one that was made for it."""
        if self._scans:
            last, own = self._scans.arrived(worker, address, row)
            if own:
                own.left, own.arrived = last.made, self.hosts.seconds
            self.hosts.account.note_server(self.shard, worker, "push", last.made, self.hosts.seconds)
            return
        if not self._due[worker]:
            raise CheckFailed(f"server {self.shard}: worker {worker} has got a row that was not made for it")
        expected, push, update = self._due[worker].popleft()
        if (row, address) != (expected, push.remote):
            raise CheckFailed(f"server {self.shard}: worker {worker} has got another row than was made for it")
        if worker == update.worker:
            update.arrived = self.hosts.seconds
        self.hosts.account.note_server(self.shard, worker, "push", update.left, self.hosts.seconds)


class _Worker(Worker):
    """A worker's host at its NIC."""

    def __init__(self, hosts: Hosts, number: int):
        self.hosts, self.board = hosts, hosts.board
        layout, job = WorkerLayout(hosts.sizes), hosts.job
        endpoint = WorkerEndpoint(
            number,
            layout,
            hosts.initial,
            job.waits,
            job.warm_up * hosts.learner.batches,
            memory=self.board.memory(number),
        )
        super().__init__(hosts, endpoint)
        self.done = False  # all its gradients have been consumed
        self._lost = False  # one of its queue pairs has ended
        self._alarm_set = False  # to ask the NICs about the queue pairs
        self._uncompleted: list[int] = []  # versions of writes whose completions are yet to be taken
        for shard in range(hosts.sizes.servers):
            for buffer in range(MODEL_BUFFERS):
                row = layout.buffer(shard, buffer)
                self.board.watch(number, row.base + row.size - 1, partial(self._row, shard, row))

    @property
    def dead(self) -> bool:
        """Whether it has stopped answering, as the job has it, or because a queue pair has ended."""
        return self._lost or super().dead

    def leave(self) -> None:
        """The run goes on without it."""
        self._lost = True
        self.advance()

    def advance(self) -> None:
        """As all workers do. ``done`` follows the host's callbacks; memory may hold a row before them."""
        self.done = self.endpoint.consumed >= self.hosts.account.gradients_each
        super().advance()

    @property
    def idle(self) -> bool:
        """Whether nothing of it is in flight: its rows have arrived, or its gradient waits at the barrier."""
        version = self.endpoint.version
        if any(server.owes(self.number) for server in self.hosts.servers):
            return False
        return self.endpoint.consumed == version or all(
            server.holds(self.number, version) for server in self.hosts.servers
        )

    def _row(self, shard: int, layout: RowLayout) -> None:
        row = bytes(self.endpoint.memory[layout.base : layout.base + layout.size])
        self.hosts.servers[shard].arrived(self.number, layout.base, row)
        self.advance()

    def send(self, pushes: Sequence[Push]) -> None:
        """One write to each server; first the completions of consumed gradients are taken, which are due."""
        hosts, program, version = self.hosts, HostProgram(), self.endpoint.version
        complete = [old for old in self._uncompleted if old <= self.endpoint.consumed]
        self._uncompleted = [*(old for old in self._uncompleted if old not in complete), version]
        for _ in range(len(complete) * hosts.sizes.servers):
            take_completion(hosts.driver, program)
        for push in pushes:
            data = bytes(self.endpoint.memory[push.local : push.local + push.length])
            hosts.servers[push.shard].gradients[self.number, version] = data
            tag = version % (1 << 16)
            key = SERVER_KEY + self.number
            post(hosts.driver, program, push.shard, Write(tag, push.local, push.remote, key, push.length))
        hosts.pushing[self.number, version] = (hosts.seconds, hosts.sizes.servers)
        self.board.run(self.number, program, self._posted)
        self.watch()

    def _posted(self, reads: list[int]) -> None:
        """The completions that were read must be good, unless the link has been cut, or loses too much."""
        driver = self.hosts.driver
        for word in reads:
            if self.dead:
                return
            ending = driver.completed_of(driver.take_completion().results([word])).ending
            if ending in (Ending.RETRIES, Ending.FLUSHED):
                self.hosts.lose(self)
            elif ending is not Ending.DONE:
                raise CheckFailed(f"worker {self.number}: a gradient's write ended with {ending.name}")

    def watch(self) -> None:
        """Set an alarm for when the queue pair of the newest gradient, or of its row, may have ended."""
        if self.hosts.patience is not None and not self._alarm_set:
            self._alarm_set = True
            self.hosts.after(self.hosts.patience, partial(self._waited, self.endpoint.version))

    def _waited(self, version: int) -> None:
        """If that gradient's row has not arrived, ask the NICs at both ends: they report nothing unasked."""
        self._alarm_set = False
        if self.dead or self.idle:
            return
        if self.endpoint.consumed < version:
            self.hosts.ask(self)
        self.watch()


class Hosts:
    """All workers, as live hosts; made in the simulator's process."""

    def __init__(
        self,
        board: Board,
        *,
        job: TrainingJob,
        learner: Learner,
        sizes: ParamServerConfig,
        initial: npt.NDArray[np.float32],
        driver: RdmaDriver,
        server_driver: ParamServerDriver,
        first_server: int,
        patience: float | None,
    ):
        self.board, self.job, self.learner, self.sizes = board, job, learner, sizes
        self.initial, self.driver, self._first_server = initial, driver, first_server
        self._server_driver = server_driver
        #: Seconds in which a queue pair ends if nothing gets through; None where nothing is lost.
        self.patience = patience
        self.account = Account(job, learner, lambda: self._w)
        #: Gradients after which a server pushes: of all workers with Sync-DSGD, else of one.
        self.round = sizes.workers if job.algorithm is Algorithm.SYNC else 1
        #: Whether a row goes to one worker, as it is made.
        self.one_receiver = self.round == 1 and not job.broadcasts
        #: Whether rows are pushed behind scans; a server in RTL does that only where it is asked for.
        self.scans = job.push_after is PushAfter.SCAN
        self.pushing: dict[tuple[int, int], tuple[float, int]] = {}  # the begin, and how many servers lack it
        self.came: dict[tuple[int, int, int], float] = {}  # to a shard, of a worker, in a slot: when
        self._began = board.now
        self.workers: list[_Worker] = []
        cuts = [sizes.shard_start(shard) for shard in range(1, sizes.servers)]
        self.servers = [_Server(self, shard, part) for shard, part in enumerate(np.split(initial, cuts))]

    def start(self) -> None:
        """All workers begin with w as it is given."""
        self.workers = [_Worker(self, number) for number in range(self.sizes.workers)]
        for shard, number, slot, address in self._gvnums():
            self.board.watch(self.node_of(shard), address, partial(self._gradient_arrived, shard, number, slot))
        for worker in self.workers:
            if worker.number in self.job.stops:
                self.after(self.job.stops[worker.number], partial(self._stop, worker))
            worker.advance()

    def _stop(self, worker: _Worker) -> None:
        sync = self.job.algorithm is Algorithm.SYNC
        if sync and worker.endpoint.version < self.account.gradients_each:
            raise sync_ends([worker.number])
        self.board.cut(worker.number)
        worker.advance()

    def ask(self, worker: _Worker) -> None:
        """Lose a worker unless all its queue pairs are in use, at its own NIC and at each server."""
        word, bit = divmod(worker.number, WORD_BITS)
        for shard in range(self.sizes.servers):
            batch = self._server_driver.batch().read("gone", index=word)
            self._lose_if(worker, self.node_of(shard), batch, lambda flags: flags >> bit & 1 == 1)
        every = (1 << self.sizes.servers) - 1
        batch = self.driver.batch().read("sending")
        self._lose_if(worker, worker.number, batch, lambda flags: flags & every != every)

    def _lose_if(self, worker: _Worker, node: int, batch: Batch, ended: Callable[[int], bool]) -> None:
        """Read a register of a node that says whether a queue pair of the worker has ended."""

        def check(words: list[int]) -> None:
            (flags,) = batch.results(words)
            assert isinstance(flags, int)
            if ended(flags) and not worker.dead:
                self.lose(worker)

        self.board.run(node, HostProgram().extend(batch.operations), check)

    def lose(self, worker: _Worker) -> None:
        """One of its queue pairs has ended: the others go on, as if its link were cut. Sync-DSGD cannot."""
        if self.job.algorithm is Algorithm.SYNC:
            raise sync_ends([worker.number])
        self.board.cut(worker.number)
        worker.leave()

    @property
    def done(self) -> bool:
        """All that was pushed has been applied, and its rows have arrived, but for dead workers."""
        return bool(self.workers) and all(
            worker.dead or (worker.done and worker.idle) for worker in self.workers
        )

    @property
    def progress(self) -> int:
        """Updates that all servers have made."""
        return self.account.applied

    def may_skip(self) -> bool:
        """While all workers compute, nothing is in flight."""
        return all(worker.idle or worker.dead for worker in self.workers)

    def waiting(self) -> str:
        """The workers that wait, and for what."""
        waits = []
        for worker in self.workers:
            if not worker.idle and not worker.dead:
                version = worker.endpoint.consumed + 1
                lacking = [s.shard for s in self.servers if (worker.number, version) in s.gradients]
                at = ", ".join(map(str, lacking or range(self.sizes.servers)))
                what = f"server {at} to apply gradient {version}" if lacking else f"server {at}'s row with it"
                waits.append(f"worker {worker.number} has pushed gradient {version} and waits for {what}")
        return "; ".join(waits) or "no worker waits"

    def result(self) -> WildRun:
        """The run's result."""
        dead = [worker.number for worker in self.workers if worker.dead]
        endpoints = [worker.endpoint for worker in self.workers]
        outcome = self.account.close(endpoints, [server.golden for server in self.servers], dead)
        for server in self.servers:
            server.check(dead)
        outcome.began = self._began / _PS_IN_A_SECOND
        return WildRun(outcome)

    @property
    def seconds(self) -> float:
        """Simulated time since the start."""
        return (self.board.now - self._began) / _PS_IN_A_SECOND

    def node_of(self, shard: int) -> int:
        """A server's number in the simulation."""
        return self._first_server + shard

    @property
    def copy_seconds(self) -> float:
        """The time to take the model out of its buffers."""
        rows = (RowLayout(self.sizes, shard, 0).size for shard in range(self.sizes.servers))
        return self.job.costs.copy * sum(rows)

    def after(self, seconds: float, then: Then) -> None:
        """Call ``then`` so much later."""
        self.board.at(self.board.now + round(seconds * _PS_IN_A_SECOND), then)

    def applied(self, staleness: int, update: Applied) -> None:
        """An update's row is in memory."""
        self.account.outcome.updates.append(update)
        self.account.update(update.shard, staleness, update.made)

    @property
    def _w(self) -> npt.NDArray[np.float32]:
        return np.concatenate([server.golden.row.w for server in self.servers])

    def _gvnums(self) -> Iterator[tuple[int, int, int, int]]:
        """Shard, worker, slot, and the address of the last byte of a gradient in it."""
        for shard in range(self.sizes.servers):
            layout = ServerLayout(self.sizes, shard)
            for worker in range(self.sizes.workers):
                for slot in range(self.sizes.slots):
                    place = layout.slot(worker, slot)
                    yield shard, worker, slot, place.base + place.size - 1

    def _gradient_arrived(self, shard: int, worker: int, slot: int) -> None:
        """The gradient in flight that takes this slot has arrived at one server more."""
        self.came[shard, worker, slot] = self.seconds
        versions = [v for w, v in self.pushing if w == worker and self.sizes.slot_of(v) == slot]
        if not versions:
            return
        version = min(versions)
        began, missing = self.pushing.pop((worker, version))
        if missing > 1:
            self.pushing[worker, version] = (began, missing - 1)
        else:
            self.workers[worker].arrived(began)
