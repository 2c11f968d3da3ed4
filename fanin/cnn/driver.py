"""The host's side of a cluster node: jobs in, batches of register accesses out; and its memory."""

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
    Failure,
    StageFifo,
    StageStream,
    StreamWord,
    Way,
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
_READS_OF_LINK = 3 * len(LINK_COUNTERS) + 1

NEEDS_RESET = (Failure.TIMEOUT, Failure.MEMORY, Failure.LINK)  #: after which no job begins before ``reset``

Words = npt.NDArray[np.uint32]
Float32 = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class CnnStatus:
    """What a node does. ``nonfinite``: an infinity or a NaN has left a stage in the last job.

    Where the job has failed with TIMEOUT, ``waits`` is the first stream that is not taken; where with LINK,
    ``connection`` is the lowest index of the connections that have failed.
    """

    running: bool
    cause: Failure
    nonfinite: bool
    waits: StageStream | None
    connection: int | None = None
    resetting: bool = False  #: a reset waits for memory's last answers
    refused: bool = False  #: the last start was refused: the node was not idle
    links_refused: bool = False  #: the last connection's settings, or start of the connections, was refused

    @property
    def names_place(self) -> bool:
        """Whether it says where a failed job has stopped."""
        return self.waits is not None or self.connection is not None

    @property
    def needs_reset(self) -> bool:
        """Whether a job begins only after :meth:`CnnDriver.reset`."""
        return self.cause in NEEDS_RESET


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: its device, and what its frames carry."""

    number: int  #: of the connection, alike at both ends
    endpoint: Endpoint
    priority: int = 0


@dataclass(frozen=True)
class StreamCounters:
    """What a stage did for one of its streams in the last job: cycles by kind, and frames that have left.

    Times are cycles of the job, modulo 2^32, of the batch that :func:`timed_batch` names.
    """

    stream: StageStream
    busy: int
    starved: int
    blocked: int
    frames: int
    nonfinite: int | None  #: the first frame with an infinity or a NaN
    first: int  #: when the batch's first frame had left in full
    last: int  #: when its last one had
    updated: int  #: of a forward stream: when the stage had updated its parameters; 0 where it has none


def timed_batch(job: Job) -> range:
    """The frames of the batch of a job whose times a node keeps: the first.

    Later ones find frames that have waited inside while layers updated themselves, and so come faster than they
    stream.
    """
    return range(min(job.batch, job.frames))


class CnnDriver(BaseDriver):
    """Batches of register accesses for a node of ``memory_map.network`` whose registers lie at ``base``.

    ``configure``, then for each job ``load``, ``train``, ``evaluate`` or ``dump``, and ``wait`` until its
    status is not ``running``. A node that was made for another network is refused: :meth:`check_identity`.
    """

    def __init__(self, memory_map: MemoryMap, *, base: int = 0):
        super().__init__(cluster_registers(), network_constants(memory_map.network), base=base)
        self.memory_map = memory_map
        self._streams = stage_streams(memory_map.network)
        self._fifos = stage_fifos(memory_map.network)

    def configure(self, *, timeout: int | None = None) -> Batch:
        """Where everything lies, and after how many cycles without any transfer a job fails.

        ``timeout`` is that of ``fanin.cnn.watchdog`` for the node's network unless given; with connections it
        must be that for the networks of all devices.
        """
        timeout = watchdog([self.memory_map.network]) if timeout is None else timeout
        batch = self.batch().write("timeout", timeout)
        ends = ("images", "labels", "results") if self.memory_map.network.at_host else ()
        for name in ("parameters", *ends):
            batch.write(name, self.memory_map.region(name).address)
        return batch

    def connect(
        self,
        own: Endpoint,
        peers: Sequence[Peer],
        *,
        run: int,
        link_timeout: int | None = None,
        link_retries: int | None = None,
    ) -> Batch:
        """Have all connections begin run number ``run``; ``peers`` in the order of the ends' stages.

        ``link_timeout`` in cycles and ``link_retries`` are the node's own unless given. Raises ValueError for
        another number of peers.
        """
        ends = network_ends(self.memory_map.network)
        if len(peers) != len(ends):
            raise ValueError(f"there must be {len(ends)} peers, one for each connection, not {len(peers)}")
        batch = self.batch()
        if not peers:
            return batch
        batch.write("run", run).write("own_mac", own.mac).write("own_ip", own.ip)
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
        """Have all connections fall silent, so that the peers find out."""
        return self.batch().write("control", reset_links=1)

    def reset(self) -> Batch:
        """Have the node forget its job, its parameters and the runs of its connections, whatever it does.

        It is done when its status is not ``resetting``; then :meth:`connect` and :meth:`load` are due. It stays
        ``resetting`` where memory never answers: the device must be configured anew.
        """
        return self.batch().write("control", reset=1)

    def load(self) -> Batch:
        """Have every layer take its words of the parameter image."""
        return self._start(Mode.LOAD)

    def dump(self) -> Batch:
        """Have every layer put its words into the parameter image."""
        return self._start(Mode.DUMP)

    def evaluate(self, frames: int) -> Batch:
        """Only results of so many images. Raises ValueError for more than memory has places for, or none."""
        return self._start(Mode.EVALUATE, frames=frames)

    def train(self, job: Job) -> Batch:
        """Train on ``job.frames`` images, in batches. Raises ValueError as :meth:`evaluate` does."""
        rates = {name: int(getattr(job, name).view(np.uint32)) for name in ("eta", "last_eta", "momentum")}
        timed = timed_batch(job)
        times = {"timed_first": timed[0], "timed_last": timed[-1]} if timed else {}
        return self._start(Mode.TRAIN, frames=job.frames, batch=job.batch, **rates, **times)

    def _start(self, mode: Any, **settings: int) -> Batch:  # a Mode, which mypy takes for an int
        most = self.memory_map.frames
        if settings.get("frames", 1) not in range(1, most + 1):
            raise ValueError(f"frames must be 1 to {most}, not {settings['frames']}")
        batch = self.batch().write("mode", mode.value)
        for name, value in settings.items():
            batch.write(name, value)
        return batch.write("control", start=1, clear_counters=1)

    def wait(self) -> Batch:
        """Read the status, to be repeated until :meth:`status_of` it is not ``running``."""
        return self.batch().read("status")

    def status_of(self, values: Sequence[Value]) -> CnnStatus:
        """The status that was read."""
        (fields,) = values
        assert isinstance(fields, dict)
        cause = Failure(fields["cause"]) if fields["failed"] else Failure.NONE
        waits = (
            self._streams[fields["waiting_stream"]] if cause is Failure.TIMEOUT and fields["waits"] else None
        )
        connection = fields["failed_connection"] if cause is Failure.LINK else None
        return CnnStatus(
            running=bool(fields["running"]),
            cause=cause,
            nonfinite=bool(fields["nonfinite"]),
            waits=waits,
            connection=connection,
            resetting=bool(fields["resetting"]),
            refused=bool(fields["refused"]),
            links_refused=bool(fields["links_refused"]),
        )

    def explain(self, status: CnnStatus) -> str:
        """Why a job has failed, in one line."""
        network = self.memory_map.network
        if status.connection is not None:
            return f"{status.cause.name}: {network.stages[network_ends(network)[status.connection]].name}"
        cause = cause_of(status.cause)
        if status.waits is not None and cause:
            return f"{status.cause.name}: what {self.name_of(status.waits)} is not taken; {cause.helps}"
        if status.cause is Failure.NONE and status.refused:
            return "REFUSED: the node was not idle when the job was to begin"
        return explain(status.cause)

    def name_of(self, stream: StageStream) -> str:
        """The stage, and which way it gives."""
        return f"{self.memory_map.network.stages[stream.stage].name} gives {stream.way.name.lower()}"

    def streams(self) -> Batch:
        """Read the counters of all streams; see :meth:`streams_of`."""
        batch = self.batch()
        for number in range(len(self._streams)):
            for word in StreamWord:
                batch.write("stream", word=word, stream_number=number).read("stream_word")
        return batch

    def streams_of(self, values: Sequence[Value]) -> list[StreamCounters]:
        """The counters that were read, in the order of the streams."""
        found = []
        for number, stream in enumerate(self._streams):
            words = [int(value) for value in values[number * len(StreamWord) :][: len(StreamWord)]]  # type: ignore[arg-type]
            busy, starved, blocked = (
                low | high << WORD_BITS for low, high in zip(words[:6:2], words[1:6:2], strict=True)
            )
            flag = words[StreamWord.NONFINITE]
            nonfinite = flag & ((1 << FRAME_BITS) - 1) if flag >> (WORD_BITS - 1) else None
            found.append(
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
        return found

    def links(self) -> Batch:
        """Read the words of all connections; see :meth:`links_of`."""
        batch = self.batch()
        for index in range(len(network_ends(self.memory_map.network))):
            for place in range(len(LINK_COUNTERS)):
                for word in (place + HIGH_WORD, place, place + HIGH_WORD):
                    batch.write("link", link_word=word, link_index=index).read("link_count")
            batch.write("link", link_word=_FAILURE_WORD, link_index=index).read("link_count")
        return batch

    def links_of(self, values: Sequence[Value]) -> list[dict[str, int]]:
        """The counters that were read, of each connection by name; ``failure`` is a LinkFailure's value."""
        words = [int(value) for value in values]  # type: ignore[arg-type]
        found = []
        for at in range(0, len(words), _READS_OF_LINK):
            *halves, failure = words[at : at + _READS_OF_LINK]
            counters = {name: _joined(*halves[3 * n : 3 * n + 3]) for n, name in enumerate(LINK_COUNTERS)}
            found.append({**counters, FAILURE: failure})
        return found

    def fifos(self) -> Batch:
        """Read the most that each FIFO has held; see :meth:`fifos_of`."""
        batch = self.batch()
        for number in range(len(self._fifos)):
            batch.write("fifo", number).read("fifo_level")
        return batch

    def fifos_of(self, values: Sequence[Value]) -> dict[StageFifo, int]:
        """The levels that were read, in the units of their FIFOs."""
        return {fifo: int(value) for fifo, value in zip(self._fifos, values, strict=True)}  # type: ignore[arg-type]

    @staticmethod
    def first_nonfinite(counters: Sequence[StreamCounters]) -> StreamCounters | None:
        """Where an infinity or a NaN came first: by frame, forward before backward, then on the way."""

        def order(one: StreamCounters) -> tuple[int, int, int, int]:
            stream = one.stream
            stage = stream.stage if stream.way is Way.FORWARD else -stream.stage
            return one.nonfinite or 0, stream.way, stage, stream.port

        return min((one for one in counters if one.nonfinite is not None), key=order, default=None)


def _joined(before: int, low: int, after: int) -> int:
    """Join a running counter's low word with its high word, which was read before and after it."""
    high = before if low > _LOW_BITS // 2 else after
    return high << WORD_BITS | low


class HostMemory:
    """A node's memory as its host fills and reads it: ``content``, bytes from address 0 on."""

    def __init__(self, memory_map: MemoryMap, content: Bytes):
        if len(content) < memory_map.end:
            raise ValueError(f"content must have at least {memory_map.end} bytes, not {len(content)}")
        self.memory_map = memory_map
        self._content = content

    def write_parameters(self, states: Sequence[Words]) -> None:
        """The words of each stage that has state, in their order."""
        for stage, words in zip(state_stages(self.memory_map.network), states, strict=True):
            at = 0
            for part in self._state(stage):
                part[:] = words[at : at + len(part)]
                at += len(part)

    def read_parameters(self) -> list[Words]:
        """The words of each stage that has state, in their order."""
        return [np.concatenate(self._state(stage)) for stage in state_stages(self.memory_map.network)]

    def _state(self, stage: int) -> list[Words]:
        """The words of a stage's state, as memory has them."""
        return [self._words(name)[at : at + n] for name, at, n in self.memory_map.state_words(stage)]

    def write_frames(self, images: Float32, labels: Float32) -> None:
        """Images and labels of a job: a frame for each index of the first axis."""
        if len(images) != len(labels) or len(images) > self.memory_map.frames:
            raise ValueError(f"there must be at most {self.memory_map.frames} images, and as many labels")
        for name, frames in (("images", images), ("labels", labels)):
            words = np.ascontiguousarray(frames, dtype=np.float32).reshape(len(frames), -1).view(np.uint32)
            self._write(name, pack(words, words.shape[1]))

    def read_results(self, frames: int) -> Float32:
        """A row for each of the first frames."""
        kind = self.memory_map.results
        words = self._words("results")[: frames * kind.beats * BEAT_BYTES // 4]
        return np.array(unpack(words, kind.words)).view(np.float32)

    def _words(self, name: str) -> Words:
        region = self.memory_map.region(name)
        return self._content[region.address : region.end].view("<u4")

    def _write(self, name: str, words: Words) -> None:
        self._words(name)[: len(words)] = words
