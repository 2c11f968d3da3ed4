"""Controller of a cluster's devices at rank 0: runs the epochs in order by orders to all devices' hosts."""

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
class BeginJob:
    """Order to start a job on all devices except the host's."""

    task: Task
    epoch: int  #: index of the job's epoch, from 0


@dataclass(frozen=True)
class StartHost:
    """Order to start the job on the host's device, and to report its end on all devices."""


@dataclass(frozen=True)
class EndRun:
    """Order to end the run."""

    epochs: int  #: number of finished epochs


@dataclass(frozen=True)
class JobReport:
    """Answer of a device at the end of a job."""

    cycle: int  #: cycle of the answer
    start_cycle: int  #: cycle in which the job started
    words: list[int]  #: words of the status and counters, as read
    results: Float32 | None = None  #: results of an epoch; only from the host's device
    result_cycles: list[int] | None = None  #: cycle in which each result was in memory; only with ``results``
    states: list[Words] | None = None  #: words of each of the device's stages with state; only after a DUMP

    @property
    def reads(self) -> Reads:
        """New reader of ``words``, from the first one."""
        return Reads(np.array(self.words, np.uint32))


class _JobFailed(Exception):
    """Failure of a job on a device."""


_Program = Generator[int, list[Any], None]
_Job = Generator[int, list[Any], list[JobReport]]


class Controller:
    """Controller of a run: sends an order, waits for the devices' answers, and chooses the next order.

    A device sends its first answer when its connections are started, without an order.

    - ``order``: callback that sends an order to all devices.
    - ``places``: nodes of the cluster, the host's device first.
    """

    def __init__(self, order: Callable[[Any], None], places: Sequence[Place], epochs: Sequence[Epoch]):
        self._order, self._epochs = order, epochs
        self._devices = [Device(index, place) for index, place in enumerate(places)]
        self._results: list[EpochResult] = []
        self._failure: str | None = None  # explanation of the first node to fail
        self._status: CnnStatus | None = None  # status of that node
        self._failed_counters: list[DeviceCounters] = []  # counters of the failed job
        self._failed_result_cycles: list[int] = []  # cycles in which the failed job's results arrived
        self._answers: dict[int, Any] = {}
        self._program = self._run()
        self._expected_answers = next(self._program)

    def accept(self, node: int, answer: Any) -> None:
        """Accept a device's answer to the last order. After the last expected answer, send the next order."""
        if isinstance(answer, JobReport):
            self._check(self._devices[node], answer)
        self._answers[node] = answer
        if len(self._answers) == self._expected_answers:
            answers, self._answers = self._answers, {}
            self._expected_answers = self._program.send([answers[node_index] for node_index in sorted(answers)])

    def result(self) -> HostsResult:
        """Return the results of all finished epochs, and the failure, if any."""
        return HostsResult(self._results, self._failure, self._failed_counters, self._failed_result_cycles)

    def _run(self) -> _Program:
        """Send the orders of the run one by one.

        Yields the number of answers to wait for; receives the answers.
        """
        yield len(self._devices)
        try:
            yield from self._job(Task.LOAD, 0)
            for number, epoch in enumerate(self._epochs):
                result = self._result(epoch, (yield from self._job(Task.EPOCH, number)))
                if epoch.dump:
                    reports = yield from self._job(Task.DUMP, number)
                    result = replace(result, states=self._states(reports))
                self._results.append(result)
        except _JobFailed:
            pass
        self._order(EndRun(len(self._results)))
        yield 0

    def _job(self, task: Task, epoch: int) -> _Job:
        """Run a job on all devices. Raises _JobFailed if a device has failed, once all have reported.

        The host's node starts last, so that no frame reaches a node before its job has started.
        """
        self._order(BeginJob(task, epoch))
        if len(self._devices) > 1:
            yield len(self._devices) - 1
        self._order(StartHost())
        reports: list[JobReport] = yield len(self._devices)
        if self._failure:
            self._failed_counters = [
                device.counters(report.reads) for device, report in zip(self._devices, reports, strict=True)
            ]
            self._failed_result_cycles = reports[HOST].result_cycles or []
            raise _JobFailed
        return reports

    def _result(self, epoch: Epoch, reports: Sequence[JobReport]) -> EpochResult:
        """Return the result of an epoch from all devices' answers."""
        host, devices, streams = reports[HOST], [], []
        fifos: dict[StageFifo, int] = {}
        for device, report in zip(self._devices, reports, strict=True):
            reads = report.reads
            devices.append(device.counters(reads))
            streams += device.streams(reads, report.start_cycle - host.start_cycle)
            fifos |= device.fifos(reads)
        streams.sort(key=lambda report: (report.stream.stage, report.stream.direction, report.stream.port))
        assert host.results is not None
        assert host.result_cycles is not None
        return EpochResult(
            epoch.job, host.results, host.result_cycles, devices, streams, fifos, host.start_cycle
        )

    def _states(self, reports: Sequence[JobReport]) -> list[Words]:
        """Return the states of all devices, in the order of the network's stages."""
        by_stage = {
            stage: words
            for device, report in zip(self._devices, reports, strict=True)
            for stage, words in zip(device.place.states, report.states or [], strict=True)
        }
        return [by_stage[stage] for stage in sorted(by_stage)]

    def _check(self, device: Device, report: JobReport) -> None:
        """Record the failure of a device's job.

        The first failure counts, unless it names no place and a later failure names the waiting stream.
        """
        driver, reads = device.driver, report.reads
        status = driver.status_of(reads.take(driver.wait()))
        if status.cause is Failure.NONE:
            return
        if self._status is None or (not self._status.names_place and status.waiting_stream is not None):
            self._status = status
            reads.take(driver.counters())
            self._failure = self._explain(device, report.cycle, status, device.links(reads))

    def _explain(self, device: Device, cycle: int, status: CnnStatus, links: dict[int, dict[str, int]]) -> str:
        """Return the failed device, cycle and cause as text; for a connection, also its peer and failure."""
        text = f"{device.place.part.device} failed by cycle {cycle}: {device.driver.explain(status)}"
        if status.connection is None:
            return text
        number = device.place.peers[status.connection].number
        (peer,) = (
            other.place.part.device
            for other in self._devices
            if other is not device and number in (end.number for end in other.place.part.ends.values())
        )
        return f"{text}, connection {number} to {peer}: {cause_of(LinkFailure(links[number]['failure']))}"
