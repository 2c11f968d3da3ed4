"""Trains on boards: memories loaded, registers written, epochs run, models read back, all by UDP."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fanin.board_memory import check_set_fits
from fanin.boards import BoardMemory
from fanin.errors import DoesNotFit, ToolFailed
from fanin.fixed import LearningRate, Loss
from fanin.glm import GlmConfig, TrainShape
from fanin.golden.glm.layout import join_model, pack_labels, pack_samples, split_ports
from fanin.hdl.boards.memory_map import BOARD, LABELS, NODE, sample_memory
from fanin.hdl.boards.registers import board_registers
from fanin.hdl.bus.register_map import WORD_BITS
from fanin.host.board import BoardClient, BoardError
from fanin.host.driver import Batch
from fanin.host.glm import NodeDriver, NodeJob, NodeMemories
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import default_deployment
from fanin.sim.cosim.run import Progress, RunResult
from fanin.sim.glm.cosim import JOB_ID, Bytes, Int32, TrainRun
from fanin.sim.network import NetworkConfig
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.host import HostSwitch
from fanin.sim.switch.make import make_switch
from fanin.wire.aggregation import Encap
from fanin.wire.ethernet import UDP_PORT, Endpoint

T = TypeVar("T")
EPOCH_TIMEOUT_S = 3600.0  # of a simulated board, too
POLL_S = 0.02
TRIES = 200  # of a request, 50 ms each: a simulated board takes its time


@dataclass(frozen=True, kw_only=True)
class BoardAddress:
    """Where a board's control answers, which board and build it must be, its core's clock, its memory."""

    host: str
    board: int
    build: int
    core_mhz: float
    memory: BoardMemory


@dataclass(frozen=True)
class _Board:
    """A board that is held: its client, and who it and its host are on its network."""

    client: BoardClient
    own: Endpoint
    host: Endpoint


class _Stopped(Exception):
    """Another board has failed."""


class Boards:
    """The nodes of a run on boards, as :class:`fanin.sim.glm.cosim.Cosim` is of simulated ones.

    ``config`` must be what the boards' nodes are. The switch is this host.
    """

    def __init__(self, config: GlmConfig, addresses: Sequence[BoardAddress]):
        self.config = config
        self.workers = len(addresses)
        self.driver = NodeDriver(config, base=NODE)
        self._addresses = addresses
        self._stop = threading.Event()  # a board has failed: no other needs to go on

    @property
    def digest(self) -> str:
        """Which builds they are."""
        return ", ".join(f"{address.build:08x}" for address in self._addresses)

    def check(self, shape: TrainShape) -> None:
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
        network: NetworkConfig | None = None,
        pcap: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> TrainRun:
        """Run ``epochs`` epochs from model 0 on the boards; as Cosim.train, without a timeline.

        Raises BoardError and ToolFailed, which name the board; the others are released.
        """
        network = network or NetworkConfig()
        program = self.program(network)
        (job,) = default_deployment(program).jobs
        with ExitStack() as stack, ThreadPoolExecutor(self.workers) as pool:
            clients = [
                stack.enter_context(
                    BoardClient(address.host, build=address.build, board=address.board, tries=TRIES)
                )
                for address in self._addresses
            ]
            held = [self._meet(client) for client in clients]
            switch = make_switch(self.workers, kind=network.switch, config=program)
            switch.add_job(job)
            server = stack.enter_context(
                HostSwitch(
                    switch,
                    boards=[(client.host, UDP_PORT) for client in clients],
                    endpoints=[member.endpoint for member in job.members],
                    address=(clients[0].local_host, UDP_PORT),
                    pcap=stack.enter_context(PcapWriter(pcap)) if pcap else None,
                )
            )

            def prepare(worker: int) -> None:
                self._load(held[worker].client, shape, features, labels, worker)
                self._configure(held[worker], shape, loss, rate, job.slots, worker, network)

            self._each(pool, prepare)
            run = TrainRun()
            before = [0] * self.workers
            for epoch in range(epochs):
                parts = self._each(pool, lambda worker: self._epoch(held[worker].client, shape, server))
                after = [counters["cycles"] for counters, _ in parts]
                run.cycles.append(max(b - a for a, b in zip(before, after, strict=True)))
                before = after
                run.models.append(join_model([weights for _, weights in parts], shape))
                if progress:
                    done = len(server.latencies_ns) * self.workers
                    progress(Progress(cycle=sum(run.cycles), phases=epoch + 1, operations=done))
            run.counters = self._each(pool, lambda worker: self._end(held[worker].client))
        run.allreduce_ns = np.array(server.latencies_ns, dtype=np.float64)
        run.raw = RunResult(
            cycles=sum(run.cycles),
            frames={"frames": server.frames},
            switch=switch.counters().as_dict(),
            jobs={job.id: switch.job_counters(job.id).as_dict()},
        )
        return run

    def partial(self, result: RunResult) -> TrainRun:
        """What came out of a run that failed: nothing but ``result``."""
        return TrainRun(raw=result)

    def program(self, network: NetworkConfig) -> ProgramConfig:
        """The switch program for these nodes."""
        node = self.config
        return ProgramConfig(
            protocol=node.protocol,
            workers=self.workers,
            slots=node.slots if network.slots is None else network.slots,
            values=node.values,
            encap=Encap.UDP,
        )

    def _meet(self, client: BoardClient) -> _Board:
        """Check that the node is the one expected, and ask the board who it and we are."""
        values = client.run(self.driver.identify())
        try:
            self.driver.check_identity(values)
        except ValueError as error:
            raise BoardError(f"board {client.host}: {error}") from None
        names = ("own_mac", "own_ip", "holder_mac_low", "holder_mac_high", "holder")
        batch = Batch(board_registers(), base=BOARD)
        for name in names:
            batch.read(name)
        own_mac, own_ip, low, high, host_ip = (int(value) for value in client.run(batch))  # type: ignore[arg-type]
        return _Board(client, Endpoint(own_mac, own_ip), Endpoint(high << WORD_BITS | low, host_ip))

    def _each(self, pool: ThreadPoolExecutor, work: Callable[[int], T]) -> list[T]:
        """What every worker's board yields, all at a time. Raises the failure of the first that has one."""

        def one(worker: int) -> T:
            try:
                return work(worker)
            except BaseException:
                self._stop.set()
                raise

        parts = [pool.submit(one, worker) for worker in range(self.workers)]
        failures = [error for part in parts if (error := part.exception())]
        for error in sorted(failures, key=lambda error: isinstance(error, _Stopped)):
            raise error  # of the board that failed, not of one that was told to stop
        return [part.result() for part in parts]

    def _load(
        self, client: BoardClient, shape: TrainShape, features: Bytes, labels: Int32, worker: int
    ) -> None:
        """Samples and labels into the board's memories, read back by their checksum."""
        for port, part in enumerate(split_ports(pack_samples(features, shape, worker))):
            client.load(sample_memory(port), _words(part))
        client.load(LABELS, _words(pack_labels(labels, shape, worker)))

    def _configure(
        self,
        board: _Board,
        shape: TrainShape,
        loss: Loss,
        rate: LearningRate,
        slots: int,
        worker: int,
        network: NetworkConfig,
    ) -> None:
        job = NodeJob(
            id=JOB_ID,
            base=0,
            slots=slots,
            member=1 << worker,
            own=board.own,
            switch=board.host,
            timeout=math.ceil(network.timeout_ns * self._addresses[worker].core_mhz / 1000),
            retries=network.retries,
        )
        memories = NodeMemories(samples=[0] * self.config.sample_ports, labels=0)
        driver, client = self.driver, board.client
        client.run(driver.configure(shape, loss=loss, rate=rate, epochs=1, job=job, memories=memories))
        client.run(driver.command("clear_model", "clear_counters"))
        self._idle(client)

    def _epoch(
        self, client: BoardClient, shape: TrainShape, server: HostSwitch
    ) -> tuple[dict[str, int], Int32]:
        driver = self.driver
        client.run(driver.command("start"))
        self._idle(client, server)
        counters = driver.counters_of(client.run(driver.counters()))
        return counters, driver.model_of(client.run(driver.read_model(shape.chunks)))

    def _idle(self, client: BoardClient, server: HostSwitch | None = None) -> None:
        """Wait until the node is not busy. Raises ToolFailed where its run has failed, or the switch has."""
        end = time.monotonic() + EPOCH_TIMEOUT_S
        while time.monotonic() < end:
            status = self.driver.status_of(client.run(self.driver.status()))
            if status.failed:
                raise ToolFailed(f"board {client.host} stopped: {status.cause.name}")
            if server and server.failure:
                raise ToolFailed(f"the switch on this host stopped: {server.failure}")
            if self._stop.is_set():
                raise _Stopped
            if not status.busy:
                return
            time.sleep(POLL_S)
        raise ToolFailed(f"board {client.host}: still busy after {EPOCH_TIMEOUT_S:g} s")

    def _end(self, client: BoardClient) -> dict[str, int]:
        """The counters once the transport waits for nothing."""
        end = time.monotonic() + EPOCH_TIMEOUT_S
        while not self.driver.status_of(client.run(self.driver.status())).idle:
            if time.monotonic() > end:
                raise ToolFailed(f"board {client.host}: packets in flight after {EPOCH_TIMEOUT_S:g} s")
            time.sleep(POLL_S)
        return self.driver.counters_of(client.run(self.driver.counters()))


def _words(part: npt.NDArray[Any]) -> list[int]:
    """Bytes of a memory as the bus' words; the last one is filled up."""
    data = np.ascontiguousarray(part).view(np.uint8).ravel()
    padded = np.pad(data, (0, -len(data) % 4))
    words: list[int] = padded.view("<u4").tolist()
    return words
