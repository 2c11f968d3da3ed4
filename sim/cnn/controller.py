"""Who has all of a cluster's devices carry out one epoch after the other, from rank 0, by orders."""

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
    """What devices do in a job."""

    LOAD = auto()  #: take their parameters from memory
    EPOCH = auto()
    DUMP = auto()  #: write their parameters to memory


@dataclass(frozen=True)
class Begin:
    """All devices begin a job, but the host's; it is for the epoch with that number, from 0."""

    task: Task
    epoch: int


@dataclass(frozen=True)
class Start:
    """The host's device begins the job, too, and all carry it out to its end."""


@dataclass(frozen=True)
class End:
    """Nothing more is to be done; so many epochs have been carried out."""

    epochs: int


@dataclass(frozen=True)
class Ended:
    """What a device answers at the end of a job: the words that its counters read, and what is in its memory.

    ``results``, and the cycles in which they were ``written``: of an epoch, at the host's device. ``states``:
    of each of its stages that has state, when they are dumped.
    """

    cycle: int
    began: int  #: the cycle in which the job began
    words: list[int]
    results: Float32 | None = None
    written: list[int] | None = None
    states: list[Words] | None = None

    @property
    def reads(self) -> Reads:
        """The words, from the first on."""
        return Reads(np.array(self.words, np.uint32))


class _JobFailed(Exception):
    """A device has failed the job."""


_Course = Generator[int, list[Any], None]
_Job = Generator[int, list[Any], list[Ended]]


class Controller:
    """Gives an order, awaits the answers of all devices that it is for, and decides on the next one.

    ``order`` takes it to all devices. The first answers come without one, when devices are connected.
    """

    def __init__(self, order: Callable[[Any], None], places: Sequence[Place], epochs: Sequence[Epoch]):
        self._order, self._epochs = order, epochs
        self._devices = [Device(index, place) for index, place in enumerate(places)]
        self._found: list[EpochResult] = []
        self._failure: str | None = None  # of the node that was the first to fail, and says why
        self._status: CnnStatus | None = None  # that node's
        self._last: list[DeviceCounters] = []  # of the job that has failed
        self._written: list[int] = []  # cycles in which its results came
        self._answers: dict[int, Any] = {}
        self._course = self._run()
        self._awaited = next(self._course)

    def told(self, node: int, answer: Any) -> None:
        """A device's answer to the last order."""
        if isinstance(answer, Ended):
            self._check(self._devices[node], answer)
        self._answers[node] = answer
        if len(self._answers) == self._awaited:
            answers, self._answers = self._answers, {}
            self._awaited = self._course.send([answers[each] for each in sorted(answers)])

    def result(self) -> HostsResult:
        """What came out."""
        return HostsResult(self._found, self._failure, self._last, self._written)

    def _run(self) -> _Course:
        """All orders, one after the other; yields how many answers it awaits, and is sent them."""
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
        """Have all devices do a job. Raises _JobFailed when all have ended it, and one has failed.

        The host's node begins last: so no frame comes to a node before its job has begun.
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
        """What an epoch has left."""
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
        """Those of all devices, in the order of the network's stages."""
        by_stage = {
            stage: words
            for device, one in zip(self._devices, dumped, strict=True)
            for stage, words in zip(device.place.states, one.states or [], strict=True)
        }
        return [by_stage[stage] for stage in sorted(by_stage)]

    def _check(self, device: Device, ended: Ended) -> None:
        """Whether a device has failed its job.

        The first one to fail says why; or, if it names no place, the first that names the stream that waits.
        """
        driver, reads = device.driver, ended.reads
        status = driver.status_of(reads.take(driver.wait()))
        if status.cause is Failure.NONE:
            return
        if self._status is None or (not self._status.names_place and status.waits is not None):
            self._status = status
            reads.take(driver.counters())
            self._failure = self._explain(device, ended.cycle, status, device.links(reads))

    def _explain(self, device: Device, cycle: int, status: CnnStatus, links: dict[int, dict[str, int]]) -> str:
        """Which node has failed, when and why; of a connection, to whom and how."""
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
