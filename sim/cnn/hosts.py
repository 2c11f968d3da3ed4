"""Live hosts of a cluster's nodes, which configure the nodes and start the jobs that the controller orders."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fanin.cnn.driver import HostMemory
from fanin.cnn.memory import BEAT_BYTES, WORD_BYTES
from fanin.hdl.layers.registers import Failure
from fanin.host.driver import Batch
from fanin.job import worker_endpoint
from fanin.sim.cnn.controller import BeginJob, Controller, EndRun, JobReport, StartHost, Task
from fanin.sim.cnn.device import HOST, Device, Place
from fanin.sim.cnn.epochs import Epoch, HostsResult
from fanin.sim.cosim.cluster import Reads
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram


@dataclass(frozen=True)
class Cut:
    """Cut of a device from the network."""

    device: int  #: index of the device
    results: int  #: number of results, over all jobs of the run, at which the cut happens
    peer: int | None = None  #: index of the only device to cut it off from; None for all devices


@dataclass(frozen=True)
class HostSettings:
    """Settings of all nodes."""

    timeout: int  #: cycles without a transfer until a job fails
    run: int = 1  #: run number of the connections
    link_timeout: int | None = None  #: cycles until a connection retransmits; None for the node's default
    link_retries: int | None = None  #: retries of a connection; None for the node's default
    cut: Cut | None = None


class ClusterHosts:
    """Live hosts of a rank's nodes. Each host carries out the orders of rank 0's controller at its node.

    ``places``: places of all nodes, the host's device first.
    """

    def __init__(
        self, board: Board, *, places: Sequence[Place], epochs: Sequence[Epoch], settings: HostSettings
    ):
        self.done = False
        self._board, self._epochs, self._settings = board, epochs, settings
        self._devices = [Device(node, places[node]) for node in board.nodes]
        self._memories = {node: HostMemory(places[node].memory_map, board.memory(node)) for node in board.nodes}
        self._start_cycles = dict.fromkeys(board.nodes, 0)  # cycle in which each node started its job
        self._task, self._epoch = Task.LOAD, 0  # current task and epoch
        self._result_cycles: list[int] = []  # cycles in which the epoch's results arrived
        self._result_count = 0  # number of results of all epochs
        self._controller: Controller | None = None
        if HOST in board.nodes:
            self._controller = Controller(board.order, places, epochs)
            board.told = self._controller.accept
        board.ordered = self._carry_out

    @property
    def progress(self) -> int:
        """Number of finished epochs."""
        return self._epoch

    def may_skip(self) -> bool:
        """Return False, since nodes are never idle."""
        return False

    def waiting(self) -> str:
        """Return the current epoch as text."""
        return f"epoch {self._epoch + 1} of {len(self._epochs)} is under way"

    def result(self) -> HostsResult | None:
        """Return the results of all ranks at rank 0; None at other ranks."""
        return self._controller.result() if self._controller else None

    def start(self) -> None:
        """Check the identity of the nodes, and connect them."""
        for device in self._devices:
            self._connect(device)
        if HOST in self._board.nodes:
            self._watch_results()
            self._cut()

    def _connect(self, device: Device) -> None:
        driver, settings, program = device.driver, self._settings, HostProgram()
        for batch in (
            driver.identify(),
            driver.configure(timeout=settings.timeout),
            driver.connect(
                worker_endpoint(device.index),
                device.place.peers,
                run=settings.run,
                link_timeout=settings.link_timeout,
                link_retries=settings.link_retries,
            ),
        ):
            program.extend(batch.operations)
        self._board.run(device.index, program, functools.partial(self._report_connection, device))

    def _report_connection(self, device: Device, words: list[int]) -> None:
        reads = Reads(np.array(words, np.uint32))
        device.driver.check_identity(reads.take(device.driver.identify()))
        self._board.tell(device.index, None)

    def _watch_results(self) -> None:
        memory_map = self._devices[HOST].place.memory_map
        results, size = memory_map.region("results").address, memory_map.results.beats * BEAT_BYTES
        for frame in range(memory_map.frames):
            last = results + frame * size + WORD_BYTES * memory_map.results.words - 1
            self._board.watch(HOST, last, self._record_result)

    def _record_result(self) -> None:
        """Record that a frame's result is in memory."""
        self._result_cycles.append(self._board.cycle)
        self._result_count += 1
        self._cut()

    def _cut(self) -> None:
        """Apply the cut once its number of results is reached."""
        cut = self._settings.cut
        if cut and self._result_count == cut.results:
            self._board.cut(cut.device, cut.peer)

    def _carry_out(self, order: Any) -> None:
        """Carry out an order of the controller."""
        match order:
            case BeginJob(task, epoch):
                self._task, self._epoch = task, epoch
                for device in self._devices:
                    if device.index != HOST:
                        self._begin(device)
                    elif task is Task.EPOCH:
                        self._memories[HOST].write_frames(
                            self._epochs[epoch].images, self._epochs[epoch].labels
                        )
                        self._result_cycles = []
            case StartHost():
                for device in self._devices:
                    if device.index == HOST:
                        self._begin(device)
                    self._finish(device)
            case EndRun(epochs):
                self._epoch = epochs
                self.done = True

    def _begin(self, device: Device) -> None:
        """Start the job on a device. Devices except the host's report the start."""
        program = HostProgram().extend(self._job(device).operations)
        self._board.run(device.index, program, functools.partial(self._report_start, device))

    def _report_start(self, device: Device, words: list[int]) -> None:
        self._start_cycles[device.index] = self._board.cycle
        if device.index != HOST:
            self._board.tell(device.index, None)

    def _job(self, device: Device) -> Batch:
        match self._task:
            case Task.LOAD:
                return device.driver.load()
            case Task.DUMP:
                return device.driver.dump()
        epoch = self._epochs[self._epoch]
        return device.driver.train(epoch.job) if epoch.job else device.driver.evaluate(len(epoch.images))

    def _finish(self, device: Device) -> None:
        """Poll for the end of a device's job, then read all counters of the device."""
        driver, program = device.driver, HostProgram()
        program.poll_field(driver.registers, "status", "running", 0)
        for batch in driver.wait(), driver.counters(), driver.links(), driver.streams(), driver.fifos():
            program.extend(batch.operations)
        self._board.run(device.index, program, functools.partial(self._report_end, device))

    def _report_end(self, device: Device, words: list[int]) -> None:
        """Report the end of a device's job. Stop the links of a failed device, so that its peers fail too."""
        driver, node = device.driver, device.index
        status = driver.status_of(Reads(np.array(words, np.uint32)).take(driver.wait()))
        if status.cause is not Failure.NONE and device.place.peers:
            silence = HostProgram().extend(driver.disconnect().operations)
            self._board.run(node, silence, lambda words: None)
        report = functools.partial(JobReport, self._board.cycle, self._start_cycles[node], words)
        memory = self._memories[node]
        if self._task is Task.DUMP:
            self._board.tell(node, report(states=memory.read_parameters()))
        elif self._task is Task.EPOCH and node == HOST:
            results = memory.read_results(len(self._epochs[self._epoch].images))
            self._board.tell(node, report(results=results, result_cycles=self._result_cycles))
        else:
            self._board.tell(node, report())
