"""Host driver of a cluster node: register accesses of each job, and access to the node's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.cnn.memory import BEAT_BYTES, MemoryMap, pack, state_stages, unpack
from fanin.cnn.training import Job
from fanin.cnn.watchdog import watchdog
from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.layers.interface import FRAME_BITS, Mode
from fanin.hdl.layers.network_port import FAILURE, HIGH_WORD, LINK_COUNTERS
from fanin.hdl.layers.registers import (
    Direction,
    Failure,
    StageFifo,
    StageStream,
    StreamWord,
    cluster_registers,
    network_constants,
    network_ends,
    stage_fifos,
    stage_streams,
)
from fanin.host.causes import cause_of, explain
from fanin.host.driver import BaseDriver, Batch, Value
from fanin.wire.ethernet import Endpoint

_FAILURE_WORD = len(LINK_COUNTERS)
_LOW_BITS = (1 << WORD_BITS) - 1
_READS_OF_LINK = 3 * len(LINK_COUNTERS) + 1  # high, low and high word of each counter, then the failure

NEEDS_RESET = (Failure.TIMEOUT, Failure.MEMORY, Failure.LINK)  #: failures that need a ``reset`` before a job

Words = npt.NDArray[np.uint32]
Float32 = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class CnnStatus:
    """Status of a node, as read from its register ``status``."""

    running: bool  #: true while a job runs
    cause: Failure  #: cause of the last job's failure; NONE if it did not fail
    nonfinite: bool  #: true if an infinity or a NaN has left a stage in the last job
    waiting_stream: StageStream | None  #: after a TIMEOUT, first stream that its consumer does not accept
    connection: int | None = None  #: after a failure LINK, lowest index of the failed connections
    resetting: bool = False  #: true while a reset waits for memory's last answers
    refused: bool = False  #: true if the last start was refused, since the node was not idle
    links_refused: bool = False  #: true if the last settings of a connection, or start of all, were refused

    @property
    def names_place(self) -> bool:
        """True if the status names the stream or connection at which a failed job has stopped."""
        return self.waiting_stream is not None or self.connection is not None

    @property
    def needs_reset(self) -> bool:
        """True if the next job needs :meth:`CnnDriver.reset` first."""
        return self.cause in NEEDS_RESET


@dataclass(frozen=True)
class Peer:
    """Other end of a connection."""

    number: int  #: number of the connection, equal at both ends
    endpoint: Endpoint  #: addresses of the peer's device
    priority: int = 0  #: priority of the connection's frames at a switch


@dataclass(frozen=True)
class StreamCounters:
    """Counters of a stage's stream in the last job.

    Cycles of events count from the job's start, modulo 2^32. *The batch* is that of :func:`timed_batch`.
    """

    stream: StageStream
    busy: int  #: cycles of the job that are neither starved nor blocked
    starved: int  #: cycles in which the stage was ready and no input was offered
    blocked: int  #: cycles in which an offered output was not taken
    frames: int  #: frames that have left
    nonfinite: int | None  #: index of the first frame with an infinity or a NaN
    first: int  #: cycle in which the batch's first frame had left in full
    last: int  #: cycle in which the batch's last frame had left in full
    updated: int  #: cycle in which a forward stream's stage had updated its parameters; 0 without parameters


def timed_batch(job: Job) -> range:
    """Return the frames of the batch whose times a node records: the first batch of the job.

    Frames of later batches queue inside the node while layers update, so they would seem to stream too fast.
    """
    return range(min(job.batch, job.frames))


class CnnDriver(BaseDriver):
    """Driver of a node of ``memory_map.network``. ``base``: byte address of its registers.

    Each method returns a batch of register accesses. Call ``configure`` first. For each job, call ``load``,
    ``train``, ``evaluate`` or ``dump``, then ``wait`` until the status is not ``running``. Before that,
    :meth:`check_identity` rejects a node of another network.
    """

    def __init__(self, memory_map: MemoryMap, *, base: int = 0):
        super().__init__(cluster_registers(), network_constants(memory_map.network), base=base)
        self.memory_map = memory_map
        self._streams = stage_streams(memory_map.network)
        self._fifos = stage_fifos(memory_map.network)

    def configure(self, *, timeout: int | None = None) -> Batch:
        """Set the addresses in memory, and the cycles without a transfer after which a job fails.

        ``timeout``: in cycles; default: ``fanin.cnn.watchdog`` of the node's network. A node with connections
        needs the watchdog of all devices' networks.
        """
        timeout = watchdog([self.memory_map.network]) if timeout is None else timeout
        batch = self.batch().write("timeout", timeout)
        ends = ("images", "labels", "results") if self.memory_map.network.at_host else ()
        for name in ("parameters", *ends):
            batch.write(name, self.memory_map.region(name).address)
        return batch

    def connect(
        self,
        endpoint: Endpoint,
        peers: Sequence[Peer],
        *,
        run: int,
        link_timeout: int | None = None,
        link_retries: int | None = None,
    ) -> Batch:
        """Start all connections.

        ``endpoint``: addresses of this device.
        ``peers``: peer of each connection, in the order of ``network_ends``.
        ``run``: run number.
        ``link_timeout``: in cycles; default: the node's own.
        ``link_retries``: default: the node's own.

        Raises ValueError for a wrong number of peers.
        """
        ends = network_ends(self.memory_map.network)
        if len(peers) != len(ends):
            raise ValueError(f"there must be {len(ends)} peers, one for each connection, not {len(peers)}")
        batch = self.batch()
        if not peers:
            return batch
        batch.write("run", run).write("own_mac", endpoint.mac).write("own_ip", endpoint.ip)
        for name, value in ("link_timeout", link_timeout), ("link_retries", link_retries):
            if value is not None:
                batch.write(name, value)
        for index, peer in enumerate(peers):
            batch.write("peer_mac", peer.endpoint.mac).write("peer_ip", peer.endpoint.ip)
            batch.write(
                "connection", connection_index=index, connection_number=peer.number, priority=peer.priority
            )
            batch.write("control", set_peer=1)
        return batch.write("control", start_links=1)

    def disconnect(self) -> Batch:
        """Stop sending on all connections, so that the peers detect the failure."""
        return self.batch().write("control", reset_links=1)

    def reset(self) -> Batch:
        """Reset the node in any state: it loses its job, its parameters and the runs of its connections.

        The reset ends when the status is not ``resetting``; :meth:`connect` and :meth:`load` must follow.
        The node stays ``resetting`` if memory never answers; the device must then be reconfigured.
        """
        return self.batch().write("control", reset=1)

    def load(self) -> Batch:
        """Load every layer's state from the parameter image."""
        return self._start(Mode.LOAD)

    def dump(self) -> Batch:
        """Write every layer's state to the parameter image."""
        return self._start(Mode.DUMP)

    def evaluate(self, frames: int) -> Batch:
        """Evaluate the first ``frames`` images. Raises ValueError unless 1 to the memory map's frames."""
        return self._start(Mode.EVALUATE, frames=frames)

    def train(self, job: Job) -> Batch:
        """Train on the first ``job.frames`` images. Raises ValueError unless 1 to the memory map's frames."""
        rates = {name: int(getattr(job, name).view(np.uint32)) for name in ("eta", "last_eta", "momentum")}
        timed = timed_batch(job)
        times = {"timed_first": timed[0], "timed_last": timed[-1]} if timed else {}
        return self._start(Mode.TRAIN, frames=job.frames, batch=job.batch, **rates, **times)

    def _start(self, mode: Any, **settings: int) -> Batch:  # a Mode, which mypy takes for an int
        maximum = self.memory_map.frames
        if settings.get("frames", 1) not in range(1, maximum + 1):
            raise ValueError(f"frames must be 1 to {maximum}, not {settings['frames']}")
        batch = self.batch().write("mode", mode.value)
        for name, value in settings.items():
            batch.write(name, value)
        return batch.write("control", start=1, clear_counters=1)

    def wait(self) -> Batch:
        """Read the status. Repeat until :meth:`status_of` returns a status that is not ``running``."""
        return self.batch().read("status")

    def status_of(self, values: Sequence[Value]) -> CnnStatus:
        """Return the status from the values read."""
        (fields,) = values
        assert isinstance(fields, dict)
        cause = Failure(fields["cause"]) if fields["failed"] else Failure.NONE
        waiting_stream = (
            self._streams[fields["waiting_stream"]] if cause is Failure.TIMEOUT and fields["waits"] else None
        )
        connection = fields["failed_connection"] if cause is Failure.LINK else None
        return CnnStatus(
            running=bool(fields["running"]),
            cause=cause,
            nonfinite=bool(fields["nonfinite"]),
            waiting_stream=waiting_stream,
            connection=connection,
            resetting=bool(fields["resetting"]),
            refused=bool(fields["refused"]),
            links_refused=bool(fields["links_refused"]),
        )

    def explain(self, status: CnnStatus) -> str:
        """Return the cause of a failed job in one line."""
        network = self.memory_map.network
        if status.connection is not None:
            return f"{status.cause.name}: {network.stages[network_ends(network)[status.connection]].name}"
        cause = cause_of(status.cause)
        if status.waiting_stream is not None and cause:
            name = self.name_of(status.waiting_stream)
            return f"{status.cause.name}: what {name} is not taken; {cause.remedy}"
        if status.cause is Failure.NONE and status.refused:
            return "REFUSED: the node was not idle when the job was to begin"
        return explain(status.cause)

    def name_of(self, stream: StageStream) -> str:
        """Return a stream's stage and direction as text."""
        return f"{self.memory_map.network.stages[stream.stage].name} gives {stream.direction.name.lower()}"

    def streams(self) -> Batch:
        """Read the counters of all streams; see :meth:`streams_of`."""
        batch = self.batch()
        for number in range(len(self._streams)):
            for word in StreamWord:
                batch.write("stream", word=word, stream_number=number).read("stream_word")
        return batch

    def streams_of(self, values: Sequence[Value]) -> list[StreamCounters]:
        """Return the counters from the values read, in the order of the streams."""
        counters = []
        for number, stream in enumerate(self._streams):
            words = [int(value) for value in values[number * len(StreamWord) :][: len(StreamWord)]]  # type: ignore[arg-type]
            busy, starved, blocked = (
                low | high << WORD_BITS for low, high in zip(words[:6:2], words[1:6:2], strict=True)
            )
            flag = words[StreamWord.NONFINITE]
            nonfinite = flag & ((1 << FRAME_BITS) - 1) if flag >> (WORD_BITS - 1) else None
            counters.append(
                StreamCounters(
                    stream,
                    busy,
                    starved,
                    blocked,
                    frames=words[StreamWord.FRAMES],
                    nonfinite=nonfinite,
                    first=words[StreamWord.FIRST],
                    last=words[StreamWord.LAST],
                    updated=words[StreamWord.UPDATED],
                )
            )
        return counters

    def links(self) -> Batch:
        """Read the counters of all connections; see :meth:`links_of`."""
        batch = self.batch()
        for index in range(len(network_ends(self.memory_map.network))):
            for counter in range(len(LINK_COUNTERS)):
                for word in (counter + HIGH_WORD, counter, counter + HIGH_WORD):
                    batch.write("link", link_word=word, link_index=index).read("link_count")
            batch.write("link", link_word=_FAILURE_WORD, link_index=index).read("link_count")
        return batch

    def links_of(self, values: Sequence[Value]) -> list[dict[str, int]]:
        """Return each connection's counters from the values read. ``failure``: a LinkFailure's value."""
        words = [int(value) for value in values]  # type: ignore[arg-type]
        connections = []
        for first in range(0, len(words), _READS_OF_LINK):
            *halves, failure = words[first : first + _READS_OF_LINK]
            counters = {name: _join_words(*halves[3 * n : 3 * n + 3]) for n, name in enumerate(LINK_COUNTERS)}
            connections.append({**counters, FAILURE: failure})
        return connections

    def fifos(self) -> Batch:
        """Read the highest level of each FIFO; see :meth:`fifos_of`."""
        batch = self.batch()
        for number in range(len(self._fifos)):
            batch.write("fifo", number).read("fifo_level")
        return batch

    def fifos_of(self, values: Sequence[Value]) -> dict[StageFifo, int]:
        """Return the levels from the values read, each in the unit of its FIFO."""
        return {fifo: int(value) for fifo, value in zip(self._fifos, values, strict=True)}  # type: ignore[arg-type]

    @staticmethod
    def first_nonfinite(counters: Sequence[StreamCounters]) -> StreamCounters | None:
        """Return the stream of the first infinity or NaN: by frame, forward before backward, upstream first."""

        def order(stream_counters: StreamCounters) -> tuple[int, int, int, int]:
            stream = stream_counters.stream
            stage = stream.stage if stream.direction is Direction.FORWARD else -stream.stage
            return stream_counters.nonfinite or 0, stream.direction, stage, stream.port

        return min(
            (stream_counters for stream_counters in counters if stream_counters.nonfinite is not None),
            key=order,
            default=None,
        )


def _join_words(high_before: int, low: int, high_after: int) -> int:
    """Return a running counter from its low word and its high word, read before and after the low word."""
    high = high_before if low > _LOW_BITS // 2 else high_after
    return high << WORD_BITS | low


class HostMemory:
    """Host's access to a node's memory.

    ``content``: bytes of the memory from address 0, which methods read and write in place.
    """

    def __init__(self, memory_map: MemoryMap, content: Bytes):
        if len(content) < memory_map.end:
            raise ValueError(f"content must have at least {memory_map.end} bytes, not {len(content)}")
        self.memory_map = memory_map
        self._content = content

    def write_parameters(self, states: Sequence[Words]) -> None:
        """Write the state of each stage of ``state_stages``, in order."""
        for stage, words in zip(state_stages(self.memory_map.network), states, strict=True):
            first = 0
            for view in self._state(stage):
                view[:] = words[first : first + len(view)]
                first += len(view)

    def read_parameters(self) -> list[Words]:
        """Return the state of each stage of ``state_stages``, in order."""
        return [np.concatenate(self._state(stage)) for stage in state_stages(self.memory_map.network)]

    def _state(self, stage: int) -> list[Words]:
        """Return views of a stage's state in memory, one for each region."""
        return [
            self._words(name)[first : first + count]
            for name, first, count in self.memory_map.state_words(stage)
        ]

    def write_frames(self, images: Float32, labels: Float32) -> None:
        """Write the images and labels of a job. The first axis of both arrays is the frame."""
        if len(images) != len(labels) or len(images) > self.memory_map.frames:
            raise ValueError(f"there must be at most {self.memory_map.frames} images, and as many labels")
        for name, frames in (("images", images), ("labels", labels)):
            words = np.ascontiguousarray(frames, dtype=np.float32).reshape(len(frames), -1).view(np.uint32)
            self._write(name, pack(words, words.shape[1]))

    def read_results(self, frames: int) -> Float32:
        """Return the results of the first ``frames`` frames, a row per frame."""
        kind = self.memory_map.results
        words = self._words("results")[: frames * kind.beats * BEAT_BYTES // 4]
        return np.array(unpack(words, kind.words)).view(np.float32)

    def _words(self, name: str) -> Words:
        region = self.memory_map.region(name)
        return self._content[region.address : region.end].view("<u4")

    def _write(self, name: str, words: Words) -> None:
        self._words(name)[: len(words)] = words
