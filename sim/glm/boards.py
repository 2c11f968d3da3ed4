"""Training on boards through UDP: loads memories, writes registers, runs epochs, reads models back."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from fanin.base.errors import DoesNotFit, InputError, ToolFailed
from fanin.boards.facts import BoardMemory
from fanin.boards.memory import check_lists_fit, check_set_fits
from fanin.fixed import NO_DECAY, Decay, LearningRate, Loss
from fanin.glm.driver import NodeDriver, NodeJob
from fanin.glm.facts import GlmConfig, TrainShape
from fanin.glm.golden.layout import join_model, split_model
from fanin.glm.golden.lists import ListTotals
from fanin.glm.golden.quantise import Samples
from fanin.hdl.boards.memory_map import NODE
from fanin.hdl.boards.registers import VERSION
from fanin.hdl.glm.node_registers import Failure
from fanin.host.board import BoardClient, BoardError
from fanin.job import Job
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.cosim.run import Progress, RunResult
from fanin.sim.glm.cosim import Int32, deployment_of
from fanin.sim.glm.course import WHOLE_TRAINING, Course, TrainRun
from fanin.sim.glm.held_board import HeldBoard, NodeFailed
from fanin.sim.glm.memories import node_lists
from fanin.sim.network import NetworkConfig
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.base import Switch
from fanin.sim.switch.host import HostSwitch
from fanin.sim.switch.make import make_switch
from fanin.wire.aggregation import Encap
from fanin.wire.ethernet import UDP_PORT

T = TypeVar("T")
EPOCH_TIMEOUT_S = 3600.0  # also enough for a simulated board
SIGNAL_CHECK_S = 0.5  # maximum delay of a signal's handler
REQUEST_TRIES = 200  # tries of a request, 50 ms each: a simulated board is slow


@dataclass(frozen=True, kw_only=True)
class BoardAddress:
    """A board to train on: host of its control, required board and build, its core's clock, and its memory."""

    host: str
    board: int
    build: int
    core_mhz: float
    memory: BoardMemory


class _Stopped(Exception):
    """Another board has failed."""


class _BoardGroup:
    """Held boards that work at the same time, each in a thread; if one fails, all stop.

    A thread polls the status of its board for at most ``EPOCH_TIMEOUT_S``.
    """

    def __init__(self, boards: Sequence[HeldBoard], server: HostSwitch, pool: ThreadPoolExecutor):
        self._boards = boards
        self._server = server
        self._pool = pool
        self._stop = threading.Event()

    def run_all(self, action: Callable[[int, HeldBoard], T]) -> list[T]:
        """Call ``action`` with every worker and its board, in parallel; return the results by worker.

        Raises ToolFailed that names the board. Of several failures, the likely cause of the others is raised. A
        lost board, or one whose packets do not arrive, makes the nodes of other boards time out.
        """

        def call(worker: int) -> T:
            try:
                return action(worker, self._boards[worker])
            except BoardError as error:
                self._stop.set()
                raise ToolFailed(str(error)) from error
            except BaseException:
                self._stop.set()
                raise

        try:
            futures = [self._pool.submit(call, worker) for worker in range(len(self._boards))]
            # A signal just before a wait does not interrupt it, so waits are short.
            while wait(futures, timeout=SIGNAL_CHECK_S).not_done:
                pass
            failures = [error for future in futures if (error := future.exception())]
        except BaseException:  # interrupted
            self._stop.set()
            raise
        for error in sorted(failures, key=_failure_rank):
            self._check_silence(error)
            raise error
        return [future.result() for future in futures]

    def wait_until_ready(self, board: HeldBoard) -> None:
        """Wait until the board's node is not busy."""
        board.wait(
            "still busy", lambda status: not status.busy, timeout=EPOCH_TIMEOUT_S, check=self._check_failures
        )

    def finish(self, worker: int, board: HeldBoard) -> dict[str, int]:
        """Wait until the board's transport is idle; return the node's counters."""
        board.wait(
            "packets in flight", lambda status: status.idle, timeout=EPOCH_TIMEOUT_S, check=self._check_failures
        )
        return board.counters()

    def _check_silence(self, error: BaseException) -> None:
        """Raise ToolFailed if a node has timed out and no packet ever came from some board."""
        silent_boards = [n for n in range(len(self._boards)) if n not in self._server.active_workers]
        if _failure_rank(error) and silent_boards:
            host, port = self._server.address
            name = self._boards[silent_boards[0]].client.host
            raise ToolFailed(f"board {name}: no packet of it arrived at UDP {host}:{port}") from error

    def _check_failures(self) -> None:
        if self._server.failure:
            raise ToolFailed(f"the switch on this host stopped: {self._server.failure}")
        if self._stop.is_set():
            raise _Stopped


def _failure_rank(error: BaseException) -> int:
    """Return the rank of a failure: 0 for a likely cause; more for a consequence of another board's failure."""
    if isinstance(error, _Stopped):
        return 2
    return int(isinstance(error, NodeFailed) and error.cause is Failure.TIMEOUT)


def _check_network(clients: Sequence[BoardClient]) -> None:
    """Raise InputError for two names of one board, and for boards on several of this host's networks."""
    first = clients[0]
    names_by_host: dict[str, str] = {}
    for client in clients:
        if other_name := names_by_host.get(client.remote_host):
            raise InputError(f"{other_name} and {client.host} are one board, {client.remote_host}")
        names_by_host[client.remote_host] = client.host
        if client.local_host != first.local_host:
            raise InputError(
                f"all boards must be on one network: this host speaks to {first.host} from "
                f"{first.local_host}, to {client.host} from {client.local_host}"
            )


@contextmanager
def _named(address: BoardAddress) -> Iterator[None]:
    """Add the board's host to a DoesNotFit of the block."""
    try:
        yield
    except DoesNotFit as error:
        raise DoesNotFit(f"board {address.host}: {error}") from None


class Boards:
    """Nodes of a run on boards: the counterpart of :class:`fanin.sim.glm.cosim.Cosim` for simulated nodes.

    ``config`` must be that of the boards' nodes. This host is the switch.
    """

    def __init__(self, config: GlmConfig, addresses: Sequence[BoardAddress]):
        self.config = config
        self.workers = len(addresses)
        self.driver = NodeDriver(config, base=NODE)
        self._addresses = addresses

    @property
    def digest(self) -> str:
        """Numbers of the boards' builds, which identify the hardware like a simulation's SHA-256."""
        return ", ".join(f"{address.build:08x}" for address in self._addresses)

    def check_fits(self, shape: TrainShape) -> None:
        """Raise DoesNotFit for a data set that is larger than a board's memory."""
        for address in self._addresses:
            with _named(address):
                check_set_fits(shape, address.memory)

    def check_lists_fit(self, shape: TrainShape, totals: ListTotals) -> None:
        """Raise DoesNotFit for words or lists of a sparse node that are larger than a board's memory.

        ``totals``: of all engines, numbered worker · E + engine.
        """
        engines = self.config.engines
        words, entries = (
            sizes.reshape(-1, engines).max(axis=1).tolist() for sizes in (totals.words, totals.entries)
        )
        for worker, address in enumerate(self._addresses):
            with _named(address):
                check_lists_fit(shape, words=words[worker], entries=entries[worker], memory=address.memory)

    def train(
        self,
        shape: TrainShape,
        features: Samples,
        labels: Int32,
        *,
        loss: Loss,
        rate: LearningRate,
        epochs: int,
        decay: Decay = NO_DECAY,
        network: NetworkConfig | None = None,
        course: Course = WHOLE_TRAINING,
        pcap: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> TrainRun:
        """Run ``epochs`` epochs on the boards, from model 0 or the course's model.

        Parameters are those of Cosim.train; there is no timeline. Raises BoardError and ToolFailed, which name
        the board, and releases the other boards. Raises InputError if the boards are not on one network, or two
        are one board. After the run, however it ends, the nodes send nothing.
        """
        network = network or NetworkConfig()
        program = self.program(network)
        (job,) = deployment_of(program, course).jobs
        run = TrainRun()
        with ExitStack() as stack, ThreadPoolExecutor(self.workers) as pool:
            held_boards = [HeldBoard.identify(client, self.driver) for client in self._acquire(stack)]
            for board in held_boards:
                stack.callback(board.reset_transport)
            switch = make_switch(self.workers, kind=network.switch, config=program)
            switch.add_job(job)
            server = stack.enter_context(
                HostSwitch(
                    switch,
                    boards=[(board.client.remote_host, UDP_PORT) for board in held_boards],
                    job=job,
                    address=(held_boards[0].client.local_host, UDP_PORT),
                    pcap=stack.enter_context(PcapWriter(pcap)) if pcap else None,
                )
            )
            group = _BoardGroup(held_boards, server, pool)

            def prepare(worker: int, board: HeldBoard) -> None:
                board.load(shape, features, labels, worker)
                node_job = self._job(board, job, worker, network)
                lists = node_lists(shape, features, worker)
                board.configure(shape, loss=loss, rate=rate, epochs=1, decay=decay, job=node_job, lists=lists)
                group.wait_until_ready(board)
                if course.model is not None:
                    board.set_model(split_model(course.model, shape, worker))

            group.run_all(prepare)
            old_cycles = [0] * self.workers
            for number in range(course.first + 1, epochs + 1):
                results = self._epoch(group, shape)
                run.cycles.append(max(cycles - b for (cycles, _), b in zip(results, old_cycles, strict=True)))
                run.models.append(join_model([weights for _, weights in results], shape))
                old_cycles = [cycles for cycles, _ in results]
                if progress:
                    done = server.operations * self.workers
                    cycle = sum(run.cycles)
                    progress(Progress(cycle=cycle, phases=number, operations=done, frames=server.frames))
                if course.is_checkpoint(number, epochs) or number == epochs:
                    run.counters = group.run_all(group.finish)
                    self._count(run, server, switch, job)
                    if course.keep:
                        course.keep(run)
        return run

    def _count(self, run: TrainRun, server: HostSwitch, switch: Switch, job: Job) -> None:
        """Store the switch's counters and latencies so far in ``run``."""
        run.allreduce_ns = np.array(server.latencies_ns, dtype=np.float64)
        run.raw = RunResult(
            cycles=sum(run.cycles),
            frames={"frames": server.frames},
            switch=switch.counters().as_dict(),
            jobs={job.id: switch.job_counters(job.id).as_dict()},
        )

    def _acquire(self, stack: ExitStack) -> list[BoardClient]:
        """Hold all boards until the stack ends, or none if they cannot form a cluster."""
        clients = []
        for address in self._addresses:
            client = BoardClient(
                address.host, build=address.build, board=address.board, version=VERSION, tries=REQUEST_TRIES
            )
            stack.callback(client.close)
            clients.append(client)
        _check_network(clients)
        return [stack.enter_context(client) for client in clients]

    def _epoch(self, group: _BoardGroup, shape: TrainShape) -> list[tuple[int, Int32]]:
        """Run one epoch on all boards; return each board's cycles since the first epoch, and its weights."""

        def epoch(worker: int, board: HeldBoard) -> tuple[int, Int32]:
            board.start()
            group.wait_until_ready(board)
            return board.counters()["cycles"], board.model(shape)

        return group.run_all(epoch)

    def partial(self, result: RunResult) -> TrainRun:
        """Return the result of a failed run, which has only ``result``."""
        return TrainRun(raw=result)

    def program(self, network: NetworkConfig) -> ProgramConfig:
        """Return the switch program for these nodes."""
        node = self.config
        return ProgramConfig(
            protocol=node.protocol,
            workers=self.workers,
            slots=node.slots if network.slots is None else network.slots,
            values=node.values,
            encap=Encap.UDP,
        )

    def _job(self, board: HeldBoard, job: Job, worker: int, network: NetworkConfig) -> NodeJob:
        """Return the run's only job as a worker's node needs it."""
        return NodeJob(
            id=job.id,
            base=job.base,
            slots=job.slots,
            member=1 << worker,
            own=board.own,
            switch=board.host,
            timeout=math.ceil(network.ceiling_ns * self._addresses[worker].core_mhz / 1000),
            adaptive=network.adaptive,
            retries=network.retries,
        )
