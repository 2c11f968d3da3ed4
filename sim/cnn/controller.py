"""Controller of a cluster's devices: runs the epochs in order by sending orders from rank 0."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import numpy as np

from fanin.cnn.driver import CnnStatus
from fanin.hdl.layers.registers import Failure, StageFifo
from fanin.hdl.net.link.job import LinkFailure
from fanin.host.causes import cause_of
from fanin.sim.cnn.device import HOST, Device, Place
from fanin.sim.cnn.epochs import DeviceCounters, Epoch, EpochResult, Float32, HostsResult, Words
from fanin.sim.cosim.cluster import Reads


class Task(Enum):
    """Kind of a job."""

    LOAD = auto()  #: read the parameters from memory
    EPOCH = auto()  #: train or evaluate
    DUMP = auto()  #: write the parameters to memory


@dataclass(frozen=True)
class Begin:
    """Order to start a job on all devices except the host's. ``epoch``: number of its epoch, from 0."""

    task: Task
    epoch: int


@dataclass(frozen=True)
class Start:
    """Order to start the job on the host's device too, and to finish it on all devices."""


@dataclass(frozen=True)
class End:
    """Order to stop. ``epochs``: number of finished epochs."""

    epochs: int


@dataclass(frozen=True)
class Ended:
    """Answer of a device at the end of a job.

    ``cycle``: cycle of the answer.
    ``words``: words of the status and counters, as read.
    ``results``: results of an epoch; only from the host's device.
    ``written``: cycle in which each result was in memory; only from the host's device.
    ``states``: words of each of the device's stages with state; only after a DUMP.
    """

    cycle: int
    began: int  #: cycle in which the job started
    words: list[int]
    results: Float32 | None = None
    written: list[int] | None = None
    states: list[Words] | None = None

    @property
    def reads(self) -> Reads:
        """A new reader of ``words``."""
        return Reads(np.array(self.words, np.uint32))


class _JobFailed(Exception):
    """Failure of a job on a device."""


_Course = Generator[int, list[Any], None]
_Job = Generator[int, list[Any], list[Ended]]


class Controller:
    """Controller of a run: sends an order, waits for the answers of its devices, and chooses the next order.

    ``order`` sends an order to all devices. A connected device sends its first answer without an order.
    """

    def __init__(self, order: Callable[[Any], None], places: Sequence[Place], epochs: Sequence[Epoch]):
        self._order, self._epochs = order, epochs
        self._devices = [Device(index, place) for index, place in enumerate(places)]
        self._found: list[EpochResult] = []
        self._failure: str | None = None  # explanation of the first node to fail
        self._status: CnnStatus | None = None  # status of that node
        self._last: list[DeviceCounters] = []  # counters of the failed job
        self._written: list[int] = []  # cycles in which the failed job's results arrived
        self._answers: dict[int, Any] = {}
        self._course = self._run()
        self._awaited = next(self._course)

    def told(self, node: int, answer: Any) -> None:
        """Accept a device's answer to the last order."""
        if isinstance(answer, Ended):
            self._check(self._devices[node], answer)
        self._answers[node] = answer
        if len(self._answers) == self._awaited:
            answers, self._answers = self._answers, {}
            self._awaited = self._course.send([answers[each] for each in sorted(answers)])

    def result(self) -> HostsResult:
        """Return the results of all finished epochs, and the failure if there is one."""
        return HostsResult(self._found, self._failure, self._last, self._written)

    def _run(self) -> _Course:
        """Give all orders in turn. Yields the number of answers to wait for, and receives the answers."""
        yield len(self._devices)
        try:
            yield from self._job(Task.LOAD, 0)
            for number, epoch in enumerate(self._epochs):
                result = self._result(epoch, (yield from self._job(Task.EPOCH, number)))
                if epoch.dump:
                    dumped = yield from self._job(Task.DUMP, number)
                    result = replace(result, states=self._states(dumped))
                self._found.append(result)
        except _JobFailed:
            pass
        self._order(End(len(self._found)))
        yield 0

    def _job(self, task: Task, epoch: int) -> _Job:
        """Run a job on all devices. Raises _JobFailed once all devices have ended it, if one has failed.

        The host's node starts last, so that no frame reaches a node before its job has started.
        """
        self._order(Begin(task, epoch))
        if len(self._devices) > 1:
            yield len(self._devices) - 1
        self._order(Start())
        ended: list[Ended] = yield len(self._devices)
        if self._failure:
            self._last = [device.counters(one.reads) for device, one in zip(self._devices, ended, strict=True)]
            self._written = ended[HOST].written or []
            raise _JobFailed
        return ended

    def _result(self, epoch: Epoch, ended: Sequence[Ended]) -> EpochResult:
        """Return the result of an epoch from all devices' answers."""
        host, devices, streams = ended[HOST], [], []
        fifos: dict[StageFifo, int] = {}
        for device, one in zip(self._devices, ended, strict=True):
            reads = one.reads
            devices.append(device.counters(reads))
            streams += device.streams(reads, one.began - host.began)
            fifos |= device.fifos(reads)
        streams.sort(key=lambda one: (one.stream.stage, one.stream.way, one.stream.port))
        assert host.results is not None
        assert host.written is not None
        return EpochResult(epoch.job, host.results, host.written, devices, streams, fifos, host.began)

    def _states(self, dumped: Sequence[Ended]) -> list[Words]:
        """Return the states of all devices, in the order of the network's stages."""
        by_stage = {
            stage: words
            for device, one in zip(self._devices, dumped, strict=True)
            for stage, words in zip(device.place.states, one.states or [], strict=True)
        }
        return [by_stage[stage] for stage in sorted(by_stage)]

    def _check(self, device: Device, ended: Ended) -> None:
        """Record the failure of a device's job.

        The first failure counts. If it names no place, a later one that names the waiting stream replaces it.
        """
        driver, reads = device.driver, ended.reads
        status = driver.status_of(reads.take(driver.wait()))
        if status.cause is Failure.NONE:
            return
        if self._status is None or (not self._status.names_place and status.waiting_stream is not None):
            self._status = status
            reads.take(driver.counters())
            self._failure = self._explain(device, ended.cycle, status, device.links(reads))

    def _explain(self, device: Device, cycle: int, status: CnnStatus, links: dict[int, dict[str, int]]) -> str:
        """Return the failed node, the cycle and the cause; for a connection, also its peer and its failure."""
        text = f"{device.place.part.device} failed by cycle {cycle}: {device.driver.explain(status)}"
        if status.connection is None:
            return text
        number = device.place.peers[status.connection].number
        (peer,) = (
            one.place.part.device
            for one in self._devices
            if one is not device and number in (end.number for end in one.place.part.ends.values())
        )
        return f"{text}, connection {number} to {peer}: {cause_of(LinkFailure(links[number]['failure']))}"
