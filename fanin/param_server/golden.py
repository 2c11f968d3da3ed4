"""The asynchronous parameter server and its workers, memory included: what their RTL and host code must do.

Contract: docs/systems/param-server.md; addresses: ``fanin.param_server.facts``. Nothing here knows of time: the
caller says when a scan, an update or a look at memory happens, and carries the bytes of a write. Source:
RDMA-wild, section 4.2, algorithms 1 and 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fanin.golden import fp32
from fanin.param_server.facts import (
    MAX_VERSION,
    MODEL_BUFFERS,
    ParamServerConfig,
    RowLayout,
    ServerLayout,
    SlotLayout,
    WorkerLayout,
)

Float32 = npt.NDArray[np.float32]
UInt32 = npt.NDArray[np.uint32]
Memory = bytearray | npt.NDArray[np.uint8]


_MAGNITUDE = np.uint32(0x7FFF_FFFF)
_LEAST = np.uint32(0x0080_0000)  # the bits of the least normal magnitude


def update(w: Float32, gradient: Float32, step: np.float32) -> Float32:
    """w - step · gradient, elementwise: one multiplication and one subtraction of ``sim.golden.fp32``.

    NumPy's own arithmetic has the same bits, and is many times faster, where nothing is subnormal or NaN.
    """
    with np.errstate(all="ignore"):
        product = gradient * step
        total = w - product
    if all(map(_ordinary, (w, gradient, np.reshape(step, 1), product, total))):
        return total
    return fp32.add(w, fp32.multiply(-step, gradient))


def _ordinary(values: Float32) -> bool:
    """Whether all are finite, and zero or above the least normal: a product may be rounded up to that."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(values.sum())
    return bool(finite and ((values.view(np.uint32) & _MAGNITUDE) - np.uint32(1)).min() >= _LEAST)


class _Row:
    """A model row in a memory."""

    def __init__(self, memory: Memory, layout: RowLayout):
        config = layout.config
        self.memory, self.layout = memory, layout
        self.w = np.frombuffer(memory, "<f4", config.shard_values(layout.shard), layout.w)
        self.lgvnum: UInt32 = np.frombuffer(memory, "<u4", config.workers, layout.lgvnum)
        self._head = np.frombuffer(memory, "<u4", 1, layout.head_version)
        self._tail = np.frombuffer(memory, "<u4", 1, layout.tail_version)

    @property
    def head(self) -> int:
        """The version that is written first."""
        return int(self._head[0])

    @property
    def tail(self) -> int:
        """The version that is written last."""
        return int(self._tail[0])

    def set_version(self, version: int) -> None:
        """Both."""
        self._head[0] = self._tail[0] = version


class _Slot:
    """A gradient with its trailer in a memory."""

    def __init__(self, memory: Memory, layout: SlotLayout):
        self.layout = layout
        self.gradient = np.frombuffer(memory, "<f4", layout.config.shard_values(layout.shard), layout.gradient)
        self.others = np.frombuffer(memory, "<u4", 1, layout.others)
        self.gvnum = np.frombuffer(memory, "<u4", 1, layout.gvnum)


@dataclass(frozen=True)
class Update:
    """A gradient that was applied, and by how many updates of others its model was older than w."""

    worker: int
    version: int
    staleness: int


@dataclass(frozen=True)
class Push:
    """A write between server and worker: bytes from ``local`` to ``remote``."""

    worker: int
    shard: int
    local: int
    remote: int
    length: int


class ParameterServer:
    """A server of one shard, in ``memory`` that RDMA writes reach; it starts with the values of ``initial``.

    ``rate`` is α; what is multiplied is α/N, rounded once to float32. With ``broadcast`` all workers get every
    row that is pushed. ``applied`` counts every (worker, version), ``version`` the updates of w. Raises
    ValueError if ``initial`` is not as long as the shard.
    """

    def __init__(self, layout: ServerLayout, *, rate: float, initial: npt.ArrayLike, broadcast: bool = False):
        self.layout, self.config = layout, layout.config
        self.step = np.float32(rate / self.config.workers)
        self.memory = bytearray(layout.base + layout.size)
        self.rows = [_Row(self.memory, layout.row(number)) for number in range(self.config.rows)]
        self.version = 0
        self._broadcast, self._pushed, self._rows_pushed = broadcast, 0, 0  # the newest row pushed; how many
        if np.shape(initial) != self.row.w.shape:
            raise ValueError(f"initial must have shape {self.row.w.shape}, not {np.shape(initial)}")
        self.row.w[:] = initial
        self.applied: Counter[tuple[int, int]] = Counter()
        self._slots = [
            [_Slot(self.memory, layout.slot(worker, slot)) for slot in range(self.config.slots)]
            for worker in range(self.config.workers)
        ]
        self._row_bytes = layout.row(0).size
        theirs = WorkerLayout(self.config)
        self._buffers = [theirs.buffer(layout.shard, number) for number in range(MODEL_BUFFERS)]

    @property
    def row(self) -> _Row:
        """The row that holds w as it is now."""
        return self.rows[self.config.row_of(self.version)]

    def fresh(self, worker: int) -> bool:
        """Whether the worker's next gradient is there: GVnum > LGVnum in the slot whose turn it is."""
        consumed = int(self.row.lgvnum[worker])
        return int(self._next_slot(worker).gvnum[0]) > consumed

    def scan(self, start: int = 0, excluded: Container[int] = ()) -> int | None:
        """The first worker with a fresh gradient, from ``start`` on and round, but for ``excluded`` ones."""
        workers = self.config.workers
        order = ((start + step) % workers for step in range(workers))
        return next((worker for worker in order if worker not in excluded and self.fresh(worker)), None)

    def apply(self, worker: int) -> Update:
        """Consume a worker's fresh gradient: the next row gets w, its version and the LGVnum vector.

        Pushes of the row that is overwritten have completed: the caller sees to that.
        LGVnum becomes what GVnum says: a version that was overwritten is never applied. Raises ValueError if
        there is no fresh gradient, OverflowError after the last version of w.
        """
        if not self.fresh(worker):
            raise ValueError(f"worker {worker} has no gradient behind {int(self.row.lgvnum[worker])}")
        if self.version == MAX_VERSION:
            raise OverflowError(f"the server has used up its {MAX_VERSION} versions of w")
        slot = self._next_slot(worker)
        version = int(slot.gvnum[0])
        staleness = self.version - int(self.row.lgvnum[worker]) - int(slot.others[0])
        old, self.version = self.row, self.version + 1
        self.row.w[:] = update(old.w, slot.gradient, self.step)
        self.row.lgvnum[:] = old.lgvnum
        self.row.lgvnum[worker] = version
        self.row.set_version(self.version)
        self.applied[worker, version] += 1
        return Update(worker, version, staleness)

    def push(self, worker: int) -> Push:
        """The write of the model row to the worker, into the buffer whose turn it is.

        In barter that follows from its LGVnum, which every row for it changes; rows that are broadcast go to
        one buffer of all workers, then to the other.
        """
        if self.version != self._pushed:
            self._pushed, self._rows_pushed = self.version, self._rows_pushed + 1
        turn = self._rows_pushed if self._broadcast else int(self.row.lgvnum[worker])
        row = self.row.layout
        return Push(worker, row.shard, row.base, self.buffer(turn), self._row_bytes)

    def buffer(self, turn: int) -> int:
        """Where a worker has the buffer whose turn it is: by its LGVnum, or by the rows that were broadcast."""
        return self._buffers[self.config.buffer_of(turn)].base

    def readmit(self, worker: int, version: int | None = None) -> int:
        """Empty the slots of an excluded worker for its replacement; its next gradient is one of zeros.

        ``version`` is one that w has had since the worker's last gradient: by default that of now. The gradient
        is of that model, so that the updates since count as its staleness. Returns the gradient's own version.
        """
        consumed = int(self.row.lgvnum[worker])
        for slot in self._slots[worker]:
            slot.gradient[:], slot.others[0], slot.gvnum[0] = 0, 0, 0
        slot = self._next_slot(worker)
        slot.others[0] = (self.version if version is None else version) - consumed
        slot.gvnum[0] = consumed + 1
        return consumed + 1

    def _next_slot(self, worker: int) -> _Slot:
        return self._slots[worker][self.config.slot_of(int(self.row.lgvnum[worker]) + 1)]


@dataclass(frozen=True)
class Reading:
    """A look at the model that has begun: each shard's buffer, and the version that it is expected to have."""

    buffers: tuple[int, ...]
    versions: tuple[int, ...]


@dataclass
class WorkerEndpoint:
    """A worker's side, in ``memory`` that the servers' writes reach; its own unless one of zeros is given.

    ``waits`` False is a worker without line 8 of algorithm 2, for tests: it overwrites what is not consumed.
    The first ``warm_up`` gradients each wait for the one before, as if there was one slot.
    ``rereads`` counts looks at the model that a write got in the way of.
    ``joins``: it replaces a worker of a run that goes on, its memory is zeros, and it awaits the rows of the
    gradient of zeros: see ``join``.
    """

    number: int
    layout: WorkerLayout
    initial: npt.ArrayLike
    waits: bool = True
    warm_up: int = 0
    version: int = 0  # of the newest gradient
    rereads: int = 0
    joins: bool = False
    memory: Memory = field(default_factory=bytearray, repr=False)

    def __post_init__(self) -> None:
        self.config: ParamServerConfig = self.layout.config
        if not len(self.memory):
            self.memory = bytearray(self.layout.base + self.layout.size)
        shards = range(self.config.servers)
        self._buffers = [
            [_Row(self.memory, self.layout.buffer(shard, number)) for number in range(MODEL_BUFFERS)]
            for shard in shards
        ]
        self._slots = [
            [_Slot(self.memory, self.layout.slot(slot, shard)) for shard in shards]
            for slot in range(self.config.slots)
        ]
        self._cuts = [self.config.shard_start(shard) for shard in shards[1:]]
        self._pushes = [
            [self._push_of(number, shard) for shard in shards] for number in range(self.config.slots)
        ]
        for (first, _), part in zip(self._buffers, self._parts(np.asarray(self.initial)), strict=True):
            first.w[:] = part

    @property
    def consumed(self) -> int:
        """The version up to which every server has consumed this worker's gradients, as far as it knows."""
        newest = (buffers[self._newest(shard)] for shard, buffers in enumerate(self._buffers))
        return min(int(row.lgvnum[self.number]) for row in newest)

    @property
    def may_push(self) -> bool:
        """Whether all shards give credit for the next gradient. Raises OverflowError after the last one."""
        if self.joins:
            return False
        if self.version == MAX_VERSION:
            raise OverflowError(f"worker {self.number} has used up its {MAX_VERSION} versions")
        if not self.waits:
            return True
        if self.version < self.warm_up:
            return self.consumed == self.version
        return self.config.may_push(self.version + 1, self.consumed)

    def join(self, version: int) -> None:
        """Continue after the gradient of zeros, which has this version, once every shard has a row with it.

        A row that is broadcast may be older: a gradient after its LGVnum would overwrite the one of zeros.
        """
        if self.joins and self.consumed >= version:
            self.version, self.joins = version, False

    def begin_read(self) -> Reading:
        """Choose the newest buffer of each shard, by the version at its end."""
        buffers = tuple(self._newest(shard) for shard in range(self.config.servers))
        versions = tuple(self._buffers[shard][number].tail for shard, number in enumerate(buffers))
        return Reading(buffers, versions)

    def end_read(self, reading: Reading) -> tuple[Float32, list[int]] | None:
        """The model, and per shard how many updates by others it has had; None if a write has begun since.

        The version in front is looked at behind the values, as it is the first that a write changes.
        """
        rows = [self._buffers[shard][number] for shard, number in enumerate(reading.buffers)]
        w = np.concatenate([row.w for row in rows])
        others = [
            version - int(row.lgvnum[self.number]) for row, version in zip(rows, reading.versions, strict=True)
        ]
        if tuple(row.head for row in rows) != reading.versions:
            self.rereads += 1
            return None
        return w, others

    def push(self, gradient: npt.ArrayLike, others: list[int]) -> Iterator[Push]:
        """The writes of the next gradient, one a shard, which is rounded to float32.

        ``others`` as ``end_read`` gave it. Raises ValueError if there is no credit for it.
        """
        if not self.may_push:
            raise ValueError(f"worker {self.number}: no credit for gradient {self.version + 1}")
        self.version += 1
        number = self.config.slot_of(self.version)
        parts = self._parts(np.asarray(gradient, dtype=np.float32))
        for shard, (slot, part) in enumerate(zip(self._slots[number], parts, strict=True)):
            slot.gradient[:] = part
            slot.others[0], slot.gvnum[0] = others[shard], self.version
            yield self._pushes[number][shard]

    def _newest(self, shard: int) -> int:
        tails = [row.tail for row in self._buffers[shard]]
        return tails.index(max(tails))

    def _push_of(self, number: int, shard: int) -> Push:
        here = self.layout.slot(number, shard)
        there = ServerLayout(self.config, shard).slot(self.number, number)
        return Push(self.number, shard, here.base, there.base, here.size)

    def _parts(self, values: Float32) -> list[Float32]:
        return np.split(values, self._cuts)


class Pusher(Protocol):
    """A worker, and the version of its newest gradient."""

    number: int
    version: int


@dataclass(frozen=True)
class Tally:
    """What became of the gradients, counted by (worker, version), per shard."""

    pushed: int
    applied: int
    lost: int
    repeated: int

    @classmethod
    def of(
        cls, workers: Sequence[Pusher], servers: Sequence[ParameterServer], gone: Container[int] = ()
    ) -> Tally:
        """Of a run that has ended; what workers that are ``gone`` have pushed may be missing."""
        pushed = {(w.number, v) for w in workers if w.number not in gone for v in range(1, w.version + 1)}
        counts = [count for server in servers for count in server.applied.values()]
        lost = sum(1 for server in servers for key in pushed if not server.applied[key])
        return cls(len(pushed) * len(servers), sum(counts), lost, sum(count - 1 for count in counts))
