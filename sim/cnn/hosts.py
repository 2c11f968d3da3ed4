"""The live hosts of a cluster's nodes: they load them, then have them carry out one epoch after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fanin.cnn_memory import BEAT_BYTES, WORD_BYTES, MemoryMap, state_stages
from fanin.cnn_parts import Part
from fanin.cnn_training import Job
from fanin.hdl.layers.registers import Failure, StageFifo
from fanin.hdl.net.link.job import LinkFailure
from fanin.host.cnn import CnnDriver, CnnStatus, HostMemory, Peer, StreamCounters
from fanin.host.driver import Batch
from fanin.job import worker_endpoint
from fanin.sim.cosim.cluster import Reads
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram

Words = npt.NDArray[np.uint32]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Epoch:
    """Frames, and what is done with them: they train as ``job`` says, or are evaluated.

    ``images`` and one-hot ``labels``: one each for each index of the first axis.
    """

    job: Job | None
    images: Float32
    labels: Float32
    dump: bool = False  #: whether the parameters are read back behind it


_CAUSES = {
    LinkFailure.TIMEOUT: "the peer does not answer",
    LinkFailure.MISMATCH: "frames are not those that are due",
    LinkFailure.LOSS: "a frame is lost",
}


@dataclass(frozen=True)
class DeviceCounters:
    """What a device counted in a job: of the node, and of each of its connections, by their numbers.

    ``links`` have ``failure`` besides, a LinkFailure's value.
    """

    counters: dict[str, int]
    links: dict[int, dict[str, int]]


@dataclass(frozen=True)
class EpochResult:
    """What came out of an epoch, carried out as ``job`` says.

    Stages are those of the whole network; the first device is the host's.
    """

    job: Job | None
    results: Float32  #: the loss's softmax, a row for each frame
    written: list[int]  #: of each frame, the cycle in which its result was in memory
    devices: list[DeviceCounters]
    streams: list[StreamCounters]  #: of each stream that leaves a stage, in the job
    fifos: dict[StageFifo, int]  #: the most that each FIFO has held in the job
    began: int  #: the cycle in which the host's device began it, from which times of streams count
    states: list[Words] | None = None  #: of each stage that has state, if they were asked for

    @property
    def counters(self) -> dict[str, int]:
        """Those of the host's node."""
        return self.devices[0].counters


@dataclass(frozen=True)
class HostsResult:
    """Epochs that were carried out. ``failure``: why there are no more, if the nodes have failed a job.

    ``last``: what devices had counted in that job, ``written``: the cycles in which its results came.
    """

    epochs: list[EpochResult]
    failure: str | None = None
    last: list[DeviceCounters] = field(default_factory=list)
    written: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """A node of the cluster: what it has of the network, what lies in its memory, who is at its connections."""

    part: Part
    memory_map: MemoryMap
    peers: tuple[Peer, ...] = ()

    @property
    def states(self) -> list[int]:
        """The stages that have state, as they are called in the whole network."""
        return [self.part.whole[stage] for stage in state_stages(self.memory_map.network)]


def whole_fifo(part: Part, fifo: StageFifo) -> StageFifo:
    """A FIFO of a device as it is called in the whole network: that of a cut edge after its consumer."""
    if fifo.stage in part.ends:
        consumer = part.ends[fifo.stage].consumer
        return replace(fifo, stage=consumer.stage, port=consumer.port)
    return replace(fifo, stage=part.whole[fifo.stage])


@dataclass(frozen=True)
class Cut:
    """The device with that index is cut off when so many results have come, of all jobs of the run.

    With ``peer`` it is cut off from that device alone.
    """

    device: int
    results: int
    peer: int | None = None


@dataclass(frozen=True)
class HostSettings:
    """What hosts tell all nodes: cycles until a job fails in which nothing moves, and what links do."""

    timeout: int
    run: int = 1
    link_timeout: int | None = None
    link_retries: int | None = None
    cut: Cut | None = None


@dataclass
class _Device:
    """A node as its host sees it."""

    index: int
    place: Place
    memory: HostMemory
    driver: CnnDriver = field(init=False)
    began: int = 0  #: the cycle in which its job began

    def __post_init__(self) -> None:
        self.driver = CnnDriver(self.place.memory_map)

    def streams(self, reads: Reads, offset: int) -> list[StreamCounters]:
        """What its stages did; ends of connections are left out. ``offset`` is added to all times."""
        found = self.driver.streams_of(reads.take(self.driver.streams()))
        whole = self.place.part.whole
        return [
            _later(replace(one, stream=replace(one.stream, stage=whole[one.stream.stage])), offset)
            for one in found
            if one.stream.stage in whole
        ]

    def fifos(self, reads: Reads) -> dict[StageFifo, int]:
        """What its FIFOs held."""
        levels = self.driver.fifos_of(reads.take(self.driver.fifos()))
        return {whole_fifo(self.place.part, one): level for one, level in levels.items()}

    def counters(self, reads: Reads) -> DeviceCounters:
        """What it counted, behind its status."""
        reads.take(self.driver.wait())
        counters = self.driver.counters_of(reads.take(self.driver.counters()))
        return DeviceCounters(counters, self.links(reads))

    def links(self, reads: Reads) -> dict[int, dict[str, int]]:
        """What its connections did."""
        counters = self.driver.links_of(reads.take(self.driver.links()))
        return {peer.number: one for peer, one in zip(self.place.peers, counters, strict=True)}


def _later(one: StreamCounters, cycles: int) -> StreamCounters:
    """The same, with times that are so much later. A time of 0 says that there is none."""
    times = {name: getattr(one, name) for name in ("first", "last", "updated")}
    return replace(one, **{name: at and at + cycles for name, at in times.items()})


def load_states(places: Sequence[Place], memories: Iterable[HostMemory], states: Sequence[Words]) -> None:
    """Put the words of each stage that has state into its device's memory."""
    by_stage = dict(zip(sorted(i for place in places for i in place.states), states, strict=True))
    for place, memory in zip(places, memories, strict=True):
        memory.write_parameters([by_stage[stage] for stage in place.states])


class ClusterHosts:
    """The live hosts. The first place is that of the host's device, which has the images and the results."""

    def __init__(
        self, board: Board, *, places: Sequence[Place], epochs: Sequence[Epoch], settings: HostSettings
    ):
        self._board, self._epochs, self._settings = board, epochs, settings
        self._devices = [
            _Device(n, place, HostMemory(place.memory_map, board.memory(n))) for n, place in enumerate(places)
        ]
        self._host = self._devices[0]
        self._found: list[EpochResult] = []
        self._written: list[int] = []  # cycles in which the epoch's results came
        self._results = 0  # of all epochs
        self._failure: str | None = None  # of the node that was the first to fail, and says why
        self._status: CnnStatus | None = None  # that node's
        self._last: list[DeviceCounters] = []  # of the job that has failed, when all nodes have

    @property
    def done(self) -> bool:
        """Whether all epochs have been carried out, or one has failed at all nodes."""
        return len(self._found) == len(self._epochs) or bool(self._last)

    @property
    def progress(self) -> int:
        """Epochs that have been carried out."""
        return len(self._found)

    def may_skip(self) -> bool:
        """Never: nodes are always at work."""
        return False

    def waiting(self) -> str:
        """Which epoch is under way."""
        return f"epoch {len(self._found) + 1} of {len(self._epochs)} is under way"

    def result(self) -> HostsResult:
        """What came out."""
        return HostsResult(self._found, self._failure, self._last, self._written)

    def start(self) -> None:
        """See that the nodes are the right ones, connect them, and load them."""
        board, settings = self._board, self._settings

        def program(device: _Device) -> HostProgram:
            driver, found = device.driver, HostProgram()
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
                found.extend(batch.operations)
            return found

        self._run_all(program, self._identified)
        memory_map = self._host.place.memory_map
        results, size = memory_map.region("results").address, memory_map.results.beats * BEAT_BYTES
        for frame in range(memory_map.frames):
            last = results + frame * size + WORD_BYTES * memory_map.results.words - 1
            board.watch(self._host.index, last, self._result)
        self._cut()

    def _result(self) -> None:
        """A frame's result is in memory."""
        self._written.append(self._board.cycle)
        self._results += 1
        self._cut()

    def _cut(self) -> None:
        """Cut what is to be cut, if it is time."""
        cut = self._settings.cut
        if cut and self._results == cut.results:
            self._board.cut(cut.device, cut.peer)

    def _run_all(
        self,
        program: Callable[[_Device], HostProgram],
        then: Callable[[list[Reads]], None],
        ended: Callable[[_Device, Reads], None] = lambda device, reads: None,
        devices: Sequence[_Device] | None = None,
    ) -> None:
        """Run a program at each node; ``ended`` as each has ended, ``then`` with all of them."""
        devices = self._devices if devices is None else devices
        found: dict[int, Reads] = {}

        def one(device: _Device, words: list[int]) -> None:
            ended(device, Reads(np.array(words, np.uint32)))
            found[device.index] = Reads(np.array(words, np.uint32))
            if len(found) == len(devices):
                then([found[each.index] for each in devices])

        for device in devices:
            self._board.run(device.index, program(device), functools.partial(one, device))
        if not devices:
            then([])

    def _identified(self, reads: list[Reads]) -> None:
        for device, words in zip(self._devices, reads, strict=True):
            device.driver.check_identity(words.take(device.driver.identify()))
        self._carry_out(lambda device: device.driver.load(), lambda reads: self._next())

    def _next(self) -> None:
        """Begin the next epoch, if there is one."""
        if self.done:
            return
        epoch = self._epochs[len(self._found)]
        self._host.memory.write_frames(epoch.images, epoch.labels)
        self._written = []

        def job(device: _Device) -> Batch:
            driver = device.driver
            return driver.train(epoch.job) if epoch.job else driver.evaluate(len(epoch.images))

        self._carry_out(job, functools.partial(self._ended, epoch))

    def _ended(self, epoch: Epoch, reads: list[Reads]) -> None:
        """An epoch is over; what it has left is read, and dumped if that is asked for."""
        devices, streams = [], []
        fifos: dict[StageFifo, int] = {}
        for device, words in zip(self._devices, reads, strict=True):
            devices.append(device.counters(words))
            streams += device.streams(words, device.began - self._host.began)
            fifos |= device.fifos(words)
        streams.sort(key=lambda one: (one.stream.stage, one.stream.way, one.stream.port))
        results = self._host.memory.read_results(len(epoch.images))
        result = EpochResult(epoch.job, results, self._written, devices, streams, fifos, self._host.began)
        if epoch.dump:
            self._carry_out(lambda device: device.driver.dump(), lambda reads: self._dumped(result))
        else:
            self._keep(result)

    def _dumped(self, result: EpochResult) -> None:
        by_stage = {
            stage: words
            for device in self._devices
            for stage, words in zip(device.place.states, device.memory.read_parameters(), strict=True)
        }
        self._keep(replace(result, states=[by_stage[stage] for stage in sorted(by_stage)]))

    def _keep(self, result: EpochResult) -> None:
        self._found.append(result)
        self._next()

    def _carry_out(self, job: Callable[[_Device], Batch], then: Callable[[list[Reads]], None]) -> None:
        """Have all nodes do a job; ``then`` gets what counters read, unless a node fails.

        The host's node begins last: so no frame comes to a node before its job has begun.
        """
        others = self._devices[1:]

        def begin(device: _Device) -> HostProgram:
            return HostProgram().extend(job(device).operations)

        def finish(device: _Device) -> HostProgram:
            driver, program = device.driver, HostProgram()
            program.poll_field(driver.registers, "status", "running", 0)
            for batch in driver.wait(), driver.counters(), driver.links(), driver.streams(), driver.fifos():
                program.extend(batch.operations)
            return program

        def finished(reads: list[Reads]) -> None:
            if self._failure is None:
                then(reads)
            else:
                self._last = [one.counters(words) for one, words in zip(self._devices, reads, strict=True)]

        def begun(device: _Device, reads: Reads) -> None:
            device.began = self._board.cycle

        def others_begun(reads: list[Reads]) -> None:
            self._run_all(begin, lambda reads: None, ended=begun, devices=[self._host])
            self._run_all(finish, finished, ended=self._check)

        self._run_all(begin, others_begun, ended=begun, devices=others)

    def _check(self, device: _Device, reads: Reads) -> None:
        """A node has ended its job. One that has failed falls silent, so that its peers fail, too.

        The first one to fail says why; or, if it names no place, the first that names the stream that waits.
        """
        driver = device.driver
        status = driver.status_of(reads.take(driver.wait()))
        if status.cause is Failure.NONE:
            return
        if self._status is None or (not self._status.names_place and status.waits is not None):
            self._status = status
            reads.take(driver.counters())
            self._failure = self._explain(device, status, device.links(reads))
        if device.place.peers:
            silence = HostProgram().extend(driver.disconnect().operations)
            self._board.run(device.index, silence, lambda words: None)

    def _explain(self, device: _Device, status: CnnStatus, links: dict[int, dict[str, int]]) -> str:
        """Which node has failed, when and why; of a connection, to whom and how."""
        text = (
            f"{device.place.part.device} failed by cycle {self._board.cycle}: {device.driver.explain(status)}"
        )
        if status.connection is None:
            return text
        number = device.place.peers[status.connection].number
        (peer,) = (
            one.place.part.device
            for one in self._devices
            if one is not device and number in (end.number for end in one.place.part.ends.values())
        )
        return f"{text}, connection {number} to {peer}: {_CAUSES[LinkFailure(links[number]['failure'])]}"
