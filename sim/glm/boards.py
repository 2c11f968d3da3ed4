"""Training on boards: memories are loaded, registers written, epochs run, and models read back, all by UDP."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from fanin.base.errors import DoesNotFit, InputError, ToolFailed
from fanin.boards.facts import BoardMemory
from fanin.boards.memory import check_set_fits
from fanin.fixed import NO_DECAY, Decay, LearningRate, Loss
from fanin.glm.driver import NodeDriver, NodeJob
from fanin.glm.facts import GlmConfig, TrainShape
from fanin.glm.golden.layout import join_model, split_model
from fanin.hdl.boards.memory_map import NODE
from fanin.hdl.boards.registers import VERSION
from fanin.hdl.glm.node_registers import Failure
from fanin.host.board import BoardClient, BoardError
from fanin.job import Job
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.cosim.run import Progress, RunResult
from fanin.sim.glm.cosim import Bytes, Int32, deployment_of
from fanin.sim.glm.course import WHOLE, Course, TrainRun
from fanin.sim.glm.held_board import HeldBoard, NodeFailed
from fanin.sim.network import NetworkConfig
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.base import Switch
from fanin.sim.switch.host import HostSwitch
from fanin.sim.switch.make import make_switch
from fanin.wire.aggregation import Encap
from fanin.wire.ethernet import UDP_PORT

T = TypeVar("T")
EPOCH_TIMEOUT_S = 3600.0  # also enough for a simulated board
LOOK_S = 0.5  # after which a signal is handled that came just before a wait
TRIES = 200  # tries of a request, 50 ms each: a simulated board is slow


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


class _Crew:
    """Held boards that work at the same time, each in a thread; if one fails, all stop.

    While a board is waited for, at most ``EPOCH_TIMEOUT_S``, its status is polled.
    """

    def __init__(self, boards: Sequence[HeldBoard], server: HostSwitch, pool: ThreadPoolExecutor):
        self._boards = boards
        self._server = server
        self._pool = pool
        self._stop = threading.Event()

    def each(self, work: Callable[[int, HeldBoard], T]) -> list[T]:
        """Call ``work`` for every worker and its board; return the results. Raises ToolFailed with the board.

        Of several failures, the likely cause of the others is raised. A board that is lost, or whose packets do
        not arrive, makes the other boards' nodes time out.
        """

        def one(worker: int) -> T:
            try:
                return work(worker, self._boards[worker])
            except BoardError as error:
                self._stop.set()
                raise ToolFailed(str(error)) from error
            except BaseException:
                self._stop.set()
                raise

        try:
            parts = [self._pool.submit(one, worker) for worker in range(len(self._boards))]
            while wait(parts, timeout=LOOK_S).not_done:  # a signal just before a wait does not interrupt it
                pass
            failures = [error for part in parts if (error := part.exception())]
        except BaseException:  # interrupted
            self._stop.set()
            raise
        for error in sorted(failures, key=_consequence):
            self._look_for_silence(error)
            raise error
        return [part.result() for part in parts]

    def until_ready(self, board: HeldBoard) -> None:
        """Wait until the board's node is not busy."""
        board.wait("still busy", lambda status: not status.busy, timeout=EPOCH_TIMEOUT_S, watch=self._watch)

    def end(self, worker: int, board: HeldBoard) -> dict[str, int]:
        """Return the counters after the transport has finished."""
        board.wait("packets in flight", lambda status: status.idle, timeout=EPOCH_TIMEOUT_S, watch=self._watch)
        return board.counters()

    def _look_for_silence(self, error: BaseException) -> None:
        """Raise ToolFailed if a node has timed out and no packet ever came from some board."""
        silent = [n for n in range(len(self._boards)) if n not in self._server.active_workers]
        if _consequence(error) and silent:
            host, port = self._server.address
            name = self._boards[silent[0]].client.host
            raise ToolFailed(f"board {name}: no packet of it arrived at UDP {host}:{port}") from error

    def _watch(self) -> None:
        if self._server.failure:
            raise ToolFailed(f"the switch on this host stopped: {self._server.failure}")
        if self._stop.is_set():
            raise _Stopped


def _consequence(error: BaseException) -> int:
    """Return 0 for a likely cause, and more for failures that probably follow from another board's."""
    if isinstance(error, _Stopped):
        return 2
    return int(isinstance(error, NodeFailed) and error.cause is Failure.TIMEOUT)


def _check_network(clients: Sequence[BoardClient]) -> None:
    """Raise InputError for two names of one board, and for boards on several of this host's networks."""
    first = clients[0]
    seen: dict[str, str] = {}
    for client in clients:
        if other := seen.get(client.remote_host):
            raise InputError(f"{other} and {client.host} are one board, {client.remote_host}")
        seen[client.remote_host] = client.host
        if client.local_host != first.local_host:
            raise InputError(
                f"all boards must be on one network: this host speaks to {first.host} from "
                f"{first.local_host}, to {client.host} from {client.local_host}"
            )


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
        """Builds of the boards."""
        return ", ".join(f"{address.build:08x}" for address in self._addresses)

    def check_fits(self, shape: TrainShape) -> None:
        """Raise DoesNotFit for a data set that is larger than a board's memory."""
        for address in self._addresses:
            try:
                check_set_fits(shape, address.memory)
            except DoesNotFit as error:
                raise DoesNotFit(f"board {address.host}: {error}") from None

    def train(
        self,
        shape: TrainShape,
        features: Bytes,
        labels: Int32,
        *,
        loss: Loss,
        rate: LearningRate,
        epochs: int,
        decay: Decay = NO_DECAY,
        network: NetworkConfig | None = None,
        course: Course = WHOLE,
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
            held = [HeldBoard.meet(client, self.driver) for client in self._acquire(stack)]
            for board in held:
                stack.callback(board.leave)
            switch = make_switch(self.workers, kind=network.switch, config=program)
            switch.add_job(job)
            server = stack.enter_context(
                HostSwitch(
                    switch,
                    boards=[(board.client.remote_host, UDP_PORT) for board in held],
                    endpoints=[member.endpoint for member in job.members],
                    address=(held[0].client.local_host, UDP_PORT),
                    pcap=stack.enter_context(PcapWriter(pcap)) if pcap else None,
                )
            )
            crew = _Crew(held, server, pool)

            def prepare(worker: int, board: HeldBoard) -> None:
                board.load(shape, features, labels, worker)
                node_job = self._job(board, job, worker, network)
                board.configure(shape, loss=loss, rate=rate, epochs=1, decay=decay, job=node_job)
                crew.until_ready(board)
                if course.model is not None:
                    board.set_model(split_model(course.model, shape, worker))

            crew.each(prepare)
            before = [0] * self.workers
            for number in range(course.first + 1, epochs + 1):
                parts = self._epoch(crew, shape)
                run.cycles.append(max(cycles - b for (cycles, _), b in zip(parts, before, strict=True)))
                run.models.append(join_model([weights for _, weights in parts], shape))
                before = [cycles for cycles, _ in parts]
                if progress:
                    done = len(server.latencies_ns) * self.workers
                    cycle = sum(run.cycles)
                    progress(Progress(cycle=cycle, phases=number, operations=done, frames=server.frames))
                if course.kept(number, epochs) or number == epochs:
                    run.counters = crew.each(crew.end)
                    self._count(run, server, switch, job)
                    if course.keep:
                        course.keep(run)
        return run

    def _count(self, run: TrainRun, server: HostSwitch, switch: Switch, job: Job) -> None:
        """Note the switch's counters so far."""
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
                address.host, build=address.build, board=address.board, version=VERSION, tries=TRIES
            )
            stack.callback(client.close)
            clients.append(client)
        _check_network(clients)
        return [stack.enter_context(client) for client in clients]

    def _epoch(self, crew: _Crew, shape: TrainShape) -> list[tuple[int, Int32]]:
        """Run one epoch on all boards; return each board's cycles since the first epoch, and its weights."""

        def epoch(worker: int, board: HeldBoard) -> tuple[int, Int32]:
            board.start()
            crew.until_ready(board)
            return board.counters()["cycles"], board.model(shape)

        return crew.each(epoch)

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
