"""Live hosts of an asynchronous training: workers compute in NumPy, servers' hosts observe RTL servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.param_server.server_control import Refusal
from fanin.host.causes import explain
from fanin.host.driver import Batch
from fanin.param_server.driver import ParamServerDriver, lgvnum_of, vacated
from fanin.param_server.facts import (
    MODEL_BUFFERS,
    ParamServerConfig,
    RowLayout,
    ServerLayout,
    WorkerLayout,
)
from fanin.param_server.golden import Push, WorkerEndpoint
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import Ending, Write, next_psn
from fanin.sim.cosim.live import Board, Callback
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import RunResult
from fanin.sim.learning.learner import Learner
from fanin.sim.param_server.controller import (
    PS,
    ActivityEnded,
    CheckQueuePairs,
    Controller,
    End,
    GiveUp,
    GradientArrived,
    GradientPushed,
    Join,
    Order,
    QueuePairEnded,
    Replace,
    ReplacementReady,
    RowReceived,
    RowStored,
    SlotsVacated,
    Watch,
    WatchExpired,
    WorkerStopped,
)
from fanin.sim.param_server.training import Outcome, ServerUpdate, TrainingJob
from fanin.sim.param_server.worker import Worker
from fanin.sim.rdma.cosim import Pair, connect, disconnect, post, take_completion

SERVER_KEY = 0x2000  # plus a worker's number: the key of its gradients at a server
WORKER_KEY = 0x1000  # plus a shard's number: the key of its model buffers at a worker
POLL_PS = 10**6  # interval in ps at which a server's host rereads its rows


@dataclass
class WildRun:
    """Result of a run in RTL: its outcome, in the event model's form, and the simulator's result ``raw``."""

    outcome: Outcome
    raw: RunResult = field(default_factory=RunResult)

    @property
    def updates(self) -> list[ServerUpdate]:
        """All updates, in order."""
        return self.outcome.updates

    def add(self, other: WildRun) -> None:
        """Add the rereads of the next rank's workers; rank 0 knows everything else."""
        self.outcome.rereads += other.outcome.rereads


class _Server:
    """Host of a server, which reports arrived gradients and stored rows to the controller."""

    def __init__(self, hosts: Hosts, shard: int):
        self._board, self._driver = hosts.board, hosts.server_driver
        self._last_version = hosts.job.gradients_each(hosts.learner)  # of a worker's gradients
        self._pair = partial(hosts.new_pair, shard=shard)
        self._node, self._sizes = hosts.node_of(shard), hosts.sizes
        self._layout = ServerLayout(hosts.sizes, shard)

    def start(self) -> None:
        """Watch the last byte of every row and every gradient."""
        for number in range(self._sizes.rows):
            row = self._layout.row(number)
            self._board.watch(self._node, row.base + row.size - 1, partial(self._report_stored, row))
        for worker in range(self._sizes.workers):
            for slot in range(self._sizes.slots):
                slot_layout = self._layout.slot(worker, slot)
                report = partial(self._board.tell, self._node, GradientArrived(worker, slot))
                self._board.watch(self._node, slot_layout.base + slot_layout.size - 1, report)

    def _report_stored(self, layout: RowLayout) -> None:
        memory = self._board.memory(self._node)
        self._board.tell(self._node, RowStored(memory[layout.base : layout.base + layout.size].tobytes()))

    def check_queue_pair(self, worker: int) -> None:
        """Read whether the queue pair to a worker has ended, and report it."""
        word, bit = divmod(worker, WORD_BITS)
        batch = self._driver.batch().read("gone", index=word)

        def report(flags: int) -> None:
            if flags >> bit & 1:
                self._board.tell(self._node, QueuePairEnded(worker))

        read_flags(self._board, self._node, batch, report)

    def replace(self, worker: int) -> None:
        """Exclude a worker, wait until the server has finished with it, and then clear its slots."""
        driver, program = self._driver, HostProgram()
        disconnect(driver, program, worker)
        program.extend(driver.exclude(worker).operations)
        program.check_field(driver.registers, "status", "refused", Refusal.NONE)
        word, bit = divmod(worker, WORD_BITS)
        program.poll(driver.registers.offset("drained", word), 1 << bit, 1 << bit)
        program.read(driver.registers.offset("w_version"))
        self._board.run(self._node, program, lambda reads: self._vacate(worker, reads[0]))

    def _vacate(self, worker: int, version: int) -> None:
        """Empty the slots once a row of that version is in memory, and readmit the replacement."""
        memory = self._board.memory(self._node)
        lgvnum = lgvnum_of(memory, self._layout, worker, version=version)
        if lgvnum is None:
            self._board.at(self._board.now + POLL_PS, partial(self._vacate, worker, version))
            return
        if lgvnum == self._last_version:
            return  # all gradients of the worker have been applied
        base, size = self._layout.region(worker)
        content = vacated(self._layout, worker, lgvnum=lgvnum, version=version)
        memory[base : base + size] = np.frombuffer(content, np.uint8)
        self._board.tell(self._node, SlotsVacated(worker, version))
        driver, program = self._driver, HostProgram()
        connect(driver, program, self._node, self._pair(worker))
        buffers, _ = WorkerLayout(self._sizes).region(self._layout.shard)
        program.extend(driver.readmit(worker, buffers=buffers, rkey=WORKER_KEY + self._layout.shard).operations)
        program.poll_field(driver.registers, "status", "setting", 0)
        program.check_field(driver.registers, "status", "refused", Refusal.NONE)
        self._board.run(self._node, program, lambda reads: None)


class _Worker(Worker):
    """Host of a worker, which drives its NIC."""

    def __init__(self, hosts: Hosts, number: int):
        self.hosts, self.board = hosts, hosts.board
        layout = WorkerLayout(hosts.sizes)
        super().__init__(hosts, hosts.endpoint(number))
        self._lost = False  # one of its queue pairs has ended
        self._watching = False  # an alarm is set, after which a queue pair may have ended
        self._uncompleted: list[int] = []  # versions whose writes' completions have not been taken
        for shard in range(hosts.sizes.servers):
            for buffer in range(MODEL_BUFFERS):
                row = layout.buffer(shard, buffer)
                self.board.watch(number, row.base + row.size - 1, partial(self._report_row, shard, row))

    @property
    def dead(self) -> bool:
        """Whether the worker has stopped answering, by the job's ``stops`` or since a queue pair ended."""
        return self._lost or super().dead

    def start(self) -> None:
        """Begin with the initial w."""
        if self.dead:
            self._stop()
        elif self.number in self.hosts.job.stops:
            self.hosts.call_after(self.hosts.job.stops[self.number], self._stop)
        if self.number in self.hosts.job.returns:
            self.hosts.call_after(self.hosts.job.returns[self.number], self._return)
        self.advance()

    def _return(self) -> None:
        """Start a replacement at the same node: reset its queue pairs, and clear its memory."""
        hosts, program = self.hosts, HostProgram()
        self.board.mend(self.number)
        for shard in range(hosts.sizes.servers):
            disconnect(hosts.driver, program, shard)
        for _ in range(len(self._uncompleted) * hosts.sizes.servers):
            take_completion(hosts.driver, program)
        for shard in range(hosts.sizes.servers):
            connect(hosts.driver, program, self.number, hosts.new_pair(self.number, shard=shard))
        self.board.run(self.number, program, lambda reads: self._begin_again())

    def _begin_again(self) -> None:
        self.endpoint.memory[:] = np.zeros(len(self.endpoint.memory), np.uint8)
        self._lost, self._uncompleted = False, []
        self.replace(self.hosts.endpoint(self.number, joins=True))
        self.board.tell(self.number, ReplacementReady())

    def _stop(self) -> None:
        if not self._lost:
            self._report_stop()

    def give_up(self) -> None:
        """Give the worker up after one of its queue pairs has ended, as if its link were cut."""
        if not self.dead:
            self._lost = True
            self._report_stop()

    def _report_stop(self) -> None:
        self.board.cut(self.number)
        self.board.tell(self.number, WorkerStopped(self._lost))

    def _report_row(self, shard: int, layout: RowLayout) -> None:
        row = bytes(self.endpoint.memory[layout.base : layout.base + layout.size])
        self.board.tell(self.number, RowReceived(shard, layout.base, row))
        self.advance()

    def send(self, pushes: Sequence[Push]) -> None:
        """Post one write per server, after taking the completions of consumed gradients."""
        hosts, program, version = self.hosts, HostProgram(), self.endpoint.version
        consumed = [earlier for earlier in self._uncompleted if earlier <= self.endpoint.consumed]
        self._uncompleted = [*(earlier for earlier in self._uncompleted if earlier not in consumed), version]
        for _ in range(len(consumed) * hosts.sizes.servers):
            take_completion(hosts.driver, program)
        parts = []
        for push in pushes:
            parts.append(bytes(self.endpoint.memory[push.local : push.local + push.length]))
            tag = version % (1 << 16)
            key = SERVER_KEY + self.number
            post(hosts.driver, program, push.shard, Write(tag, push.local, push.remote, key, push.length))
        self.board.tell(self.number, GradientPushed(version, parts))
        self.board.run(self.number, program, self._posted)
        self.watch()

    def _posted(self, reads: list[int]) -> None:
        """Check the completions: only a cut or too lossy link may end a write with an error."""
        driver = self.hosts.driver
        for word in reads:
            if self.dead:
                return
            ending = driver.completion_of(driver.take_completion().results([word])).ending
            if ending in (Ending.RETRIES, Ending.FLUSHED):
                self.give_up()
            elif ending is not Ending.DONE:
                raise CheckFailed(f"worker {self.number}: a gradient's write ended with {explain(ending)}")

    def watch(self) -> None:
        """Set an alarm for the time after which a queue pair in use may have ended."""
        if self.hosts.give_up_seconds is not None and not self._watching:
            self._watching = True
            self.hosts.call_after(self.hosts.give_up_seconds, self._expire)

    def _expire(self) -> None:
        self._watching = False
        if not self.dead:
            self.board.tell(self.number, WatchExpired())

    def check_queue_pairs(self) -> None:
        """Read whether one of the worker's queue pairs has ended, and give the worker up if so."""
        all_servers = (1 << self.hosts.sizes.servers) - 1

        def check(flags: int) -> None:
            if flags & all_servers != all_servers:
                self.give_up()

        read_flags(self.board, self.number, self.hosts.driver.batch().read("sending"), check)
        self.watch()


class Hosts:
    """Live hosts of a rank's nodes, made in the simulator's process.

    Each host reacts to its own node, and carries out the orders of the controller at rank 0.

    - ``initial``: initial values of w.
    - ``driver``, ``server_driver``: drivers of the workers' NICs and of the servers' nodes.
    - ``first_server``: node of the first server; the other servers follow.
    - ``give_up_seconds``: seconds without any delivery until a queue pair ends; None if no frame is lost.
    - ``limits``: path MTU, window and retries of queue pairs, as in ``Pair.of``.
    """

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
        give_up_seconds: float | None,
        limits: Mapping[str, int],
    ):
        self.board, self.job, self.learner, self.sizes = board, job, learner, sizes
        self.initial, self.driver, self.server_driver = initial, driver, server_driver
        self.give_up_seconds, self.done, self._limits = give_up_seconds, False, limits
        self._first_server, self._start_ps = first_server, board.now
        self._workers = {n: _Worker(self, n) for n in range(sizes.workers) if n in board.nodes}
        self._servers = [_Server(self, n) for n in range(sizes.servers) if self.node_of(n) in board.nodes]
        self._controller: Controller | None = None
        if board.nodes[0] == 0:
            self._controller = Controller(
                board,
                job=job,
                learner=learner,
                sizes=sizes,
                initial=initial,
                first_server=first_server,
                give_up_seconds=give_up_seconds,
            )
            board.told = self._controller.handle
        board.ordered = self._obey

    def start(self) -> None:
        """Start all hosts."""
        for server in self._servers:
            server.start()
        for worker in self._workers.values():
            worker.start()

    def _obey(self, order: Order) -> None:
        """Carry out an order of the controller."""
        worker = None if isinstance(order, End) else self._workers.get(order.worker)
        match order:
            case Watch() if worker:
                worker.watch()
            case CheckQueuePairs(number):
                for server in self._servers:
                    server.check_queue_pair(number)
                if worker:
                    worker.check_queue_pairs()
            case GiveUp() if worker:
                worker.give_up()
            case Replace(number):
                for server in self._servers:
                    server.replace(number)
            case Join(_, version) if worker:
                worker.join(version)
            case End():
                self.done = True

    @property
    def progress(self) -> int:
        """Number of gradients that all servers have applied; all gradients at ranks other than 0."""
        return self._controller.applied if self._controller else self._all_gradients

    @property
    def _all_gradients(self) -> int:
        return self.job.gradients_each(self.learner) * self.sizes.workers

    def may_skip(self) -> bool:
        """Return whether nothing is in flight; only rank 0 knows it."""
        return self._controller.idle if self._controller else True

    def waiting(self) -> str:
        """Return the waiting workers, and what each waits for; only rank 0 knows it."""
        return self._controller.waiting() if self._controller else ""

    def result(self) -> WildRun:
        """Return the run's result at rank 0; at other ranks only their workers' rereads."""
        outcome = self._controller.result() if self._controller else Outcome()
        outcome.rereads = sum(worker.endpoint.rereads for worker in self._workers.values())
        return WildRun(outcome)

    @property
    def seconds(self) -> float:
        """Simulated time since the start."""
        return (self.board.now - self._start_ps) / PS

    def endpoint(self, worker: int, *, joins: bool = False) -> WorkerEndpoint:
        """Return a worker's initial state, in its node's memory."""
        return WorkerEndpoint(
            worker,
            WorkerLayout(self.sizes),
            np.zeros_like(self.initial) if joins else self.initial,
            self.job.waits_for_credit,
            0 if joins else self.job.warm_up * self.learner.batches,
            joins=joins,
            memory=self.board.memory(worker),
        )

    def new_pair(self, worker: int, *, shard: int) -> Pair:
        """Return the connection of a worker's replacement, with numbers far from the previous connection's."""
        first = next_psn(0)
        return Pair.of((worker, shard), (self.node_of(shard), worker), psns=(first, first), **self._limits)

    def node_of(self, shard: int) -> int:
        """Return a server's number in the simulation."""
        return self._first_server + shard

    @property
    def copy_seconds(self) -> float:
        """Seconds to take the model out of its buffers."""
        rows = (RowLayout(self.sizes, shard, 0).size for shard in range(self.sizes.servers))
        return self.job.costs.copy * sum(rows)

    def note(self, worker: int, kind: str, begin: float) -> None:
        """Report a worker's activity that ends now."""
        self.board.tell(worker, ActivityEnded(kind, begin))

    def call_after(self, seconds: float, callback: Callback) -> None:
        """Call ``callback`` after ``seconds``."""
        self.board.at(self.board.now + round(seconds * PS), callback)


def read_flags(board: Board, node: int, batch: Batch, callback: Callable[[int], None]) -> None:
    """Read a node's register of flags with ``batch``; call ``callback`` with its value."""

    def pass_flags(words: list[int]) -> None:
        (flags,) = batch.results(words)
        assert isinstance(flags, int)
        callback(flags)

    board.run(node, HostProgram().extend(batch.operations), pass_flags)
