"""Golden model of the asynchronous parameter server and its workers, including their memory.

RTL and host code must match it. Contract: docs/systems/param-server.md. ``fanin.param_server.facts`` has the
addresses, and defines GVnum, LGVnum and row. The model has no time: the caller decides when a scan, an update
or a read of the model happens, and copies the bytes of each write. Source: RDMA-wild, section 4.2, algorithms 1
and 2.
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
_MIN_NORMAL = np.uint32(0x0080_0000)  # bits of the least normal magnitude


def update(w: Float32, gradient: Float32, step: np.float32) -> Float32:
    """Return w - step · gradient, elementwise: one multiplication and one subtraction of ``fanin.golden.fp32``.

    NumPy's own arithmetic is many times faster and has the same bits if no value is subnormal or NaN.
    """
    with np.errstate(all="ignore"):
        product = gradient * step
        total = w - product
    if all(map(_is_normal, (w, gradient, np.reshape(step, 1), product, total))):
        return total
    return fp32.add(w, fp32.multiply(-step, gradient))


def _is_normal(values: Float32) -> bool:
    """Return whether all values are finite, and each is zero or above the least normal magnitude.

    The least normal itself is excluded: a product that NumPy rounds up to it is a zero in ``fp32``.
    """
    with np.errstate(all="ignore"):
        finite = np.isfinite(values.sum())
    return bool(finite and ((values.view(np.uint32) & _MAGNITUDE) - np.uint32(1)).min() >= _MIN_NORMAL)


class _Row:
    """View of a model row in a memory."""

    def __init__(self, memory: Memory, layout: RowLayout):
        config = layout.config
        self.memory, self.layout = memory, layout
        self.w = np.frombuffer(memory, "<f4", config.shard_values(layout.shard), layout.w)
        self.lgvnum: UInt32 = np.frombuffer(memory, "<u4", config.workers, layout.lgvnum)
        self._head = np.frombuffer(memory, "<u4", 1, layout.head_version)
        self._tail = np.frombuffer(memory, "<u4", 1, layout.tail_version)

    @property
    def head(self) -> int:
        """Version that is written first."""
        return int(self._head[0])

    @property
    def tail(self) -> int:
        """Version that is written last."""
        return int(self._tail[0])

    def set_version(self, version: int) -> None:
        """Set both versions."""
        self._head[0] = self._tail[0] = version


class _Slot:
    """View of a gradient and its trailer in a memory."""

    def __init__(self, memory: Memory, layout: SlotLayout):
        self.layout = layout
        self.gradient = np.frombuffer(memory, "<f4", layout.config.shard_values(layout.shard), layout.gradient)
        self.others = np.frombuffer(memory, "<u4", 1, layout.others)
        self.gvnum = np.frombuffer(memory, "<u4", 1, layout.gvnum)


@dataclass(frozen=True)
class Update:
    """An applied gradient; ``staleness``: updates of other workers since the model it was computed on."""

    worker: int
    version: int
    staleness: int


@dataclass(frozen=True)
class Push:
    """A write between server and worker of ``length`` bytes from address ``local`` to address ``remote``."""

    worker: int
    shard: int
    local: int
    remote: int
    length: int


class ParameterServer:
    """Server of one shard. RDMA writes change its ``memory``; w starts with the values of ``initial``.

    - ``rate``: α; gradients are multiplied by α/N, rounded once to float32.
    - ``broadcast``: all workers get every row that is pushed.
    - ``applied``: count of each applied (worker, version).
    - ``version``: number of updates of w.

    Raises ValueError if ``initial`` is not as long as the shard.
    """

    def __init__(self, layout: ServerLayout, *, rate: float, initial: npt.ArrayLike, broadcast: bool = False):
        self.layout, self.config = layout, layout.config
        self.step = np.float32(rate / self.config.workers)
        self.memory = bytearray(layout.base + layout.size)
        self.rows = [_Row(self.memory, layout.row(number)) for number in range(self.config.rows)]
        self.version = 0
        # Version of the newest row pushed, and number of rows pushed.
        self._broadcast, self._pushed, self._rows_pushed = broadcast, 0, 0
        if np.shape(initial) != self.row.w.shape:
            raise ValueError(f"initial must have shape {self.row.w.shape}, not {np.shape(initial)}")
        self.row.w[:] = initial
        self.applied: Counter[tuple[int, int]] = Counter()
        self._slots = [
            [_Slot(self.memory, layout.slot(worker, slot)) for slot in range(self.config.slots)]
            for worker in range(self.config.workers)
        ]
        self._row_bytes = layout.row(0).size
        worker_layout = WorkerLayout(self.config)
        self._buffers = [worker_layout.buffer(layout.shard, number) for number in range(MODEL_BUFFERS)]

    @property
    def row(self) -> _Row:
        """The row that holds the current w."""
        return self.rows[self.config.row_of(self.version)]

    def has_gradient(self, worker: int) -> bool:
        """Return whether the worker's next gradient is present: GVnum > LGVnum in the next slot."""
        consumed = int(self.row.lgvnum[worker])
        return int(self._next_slot(worker).gvnum[0]) > consumed

    def scan(self, start: int = 0, excluded: Container[int] = ()) -> int | None:
        """Return the first worker with a new gradient, searching cyclically from ``start``; skip
        ``excluded``.
        """
        workers = self.config.workers
        order = ((start + step) % workers for step in range(workers))
        return next((worker for worker in order if worker not in excluded and self.has_gradient(worker)), None)

    def apply(self, worker: int) -> Update:
        """Consume a worker's new gradient: write w, its version and the LGVnum vector to the next row.

        The caller must wait for pushes of the row that is overwritten. LGVnum becomes the gradient's GVnum, so
        a gradient that was overwritten in its slot is never applied. Raises ValueError if there is no new
        gradient, OverflowError after the last version of w.
        """
        if not self.has_gradient(worker):
            raise ValueError(f"worker {worker} has no gradient after {int(self.row.lgvnum[worker])}")
        if self.version == MAX_VERSION:
            raise OverflowError(f"the server has used up its {MAX_VERSION} versions of w")
        slot = self._next_slot(worker)
        version = int(slot.gvnum[0])
        staleness = self.version - int(self.row.lgvnum[worker]) - int(slot.others[0])
        previous, self.version = self.row, self.version + 1
        self.row.w[:] = update(previous.w, slot.gradient, self.step)
        self.row.lgvnum[:] = previous.lgvnum
        self.row.lgvnum[worker] = version
        self.row.set_version(self.version)
        self.applied[worker, version] += 1
        return Update(worker, version, staleness)

    def push(self, worker: int) -> Push:
        """Return the write of the current row to the worker, into the worker's next buffer.

        Without broadcast, the worker's LGVnum selects the buffer; every row for the worker changes it.
        Broadcast rows alternate between the two buffers of all workers.
        """
        if self.version != self._pushed:
            self._pushed, self._rows_pushed = self.version, self._rows_pushed + 1
        row_number = self._rows_pushed if self._broadcast else int(self.row.lgvnum[worker])
        row = self.row.layout
        return Push(worker, row.shard, row.base, self.buffer(row_number), self._row_bytes)

    def buffer(self, row_number: int) -> int:
        """Return the address of the worker's buffer for a row.

        ``row_number``: the worker's LGVnum in the row; if rows are broadcast, the number of pushed rows.
        """
        return self._buffers[self.config.buffer_of(row_number)].base

    def readmit(self, worker: int, version: int | None = None) -> int:
        """Empty the slots of an excluded worker for its replacement; its next gradient is one of zeros.

        ``version``: a version of w since the worker's last gradient, by default the current one. The gradient
        of zeros counts as computed on that model, so later updates are its staleness. Returns the version of
        this gradient.
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
    """A started read of the model: the buffer of each shard, and the version it is expected to have."""

    buffers: tuple[int, ...]
    versions: tuple[int, ...]


@dataclass
class WorkerEndpoint:
    """A worker's side of the protocol. The servers' writes change ``memory``, which is allocated unless given.

    - ``number``: the worker's number.
    - ``initial``: initial values of w.
    - ``waits_for_credit``: False omits line 8 of algorithm 2, for tests: unconsumed gradients are overwritten.
    - ``warm_up``: this many first gradients each wait for the previous one, as with one slot.
    - ``version``: of the newest gradient.
    - ``rereads``: reads of the model that a write invalidated.
    - ``joins``: the worker replaces another during a run. Its memory is zeros, and it waits for the rows of the
      gradient of zeros; see ``join``.
    """

    number: int
    layout: WorkerLayout
    initial: npt.ArrayLike
    waits_for_credit: bool = True
    warm_up: int = 0
    version: int = 0
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
        self._shard_starts = [self.config.shard_start(shard) for shard in shards[1:]]
        self._pushes = [
            [self._push_of(number, shard) for shard in shards] for number in range(self.config.slots)
        ]
        for (first, _), part in zip(self._buffers, self._parts(np.asarray(self.initial)), strict=True):
            first.w[:] = part

    @property
    def consumed(self) -> int:
        """Newest version that every server has consumed of this worker's gradients, as far as the worker
        knows.
        """
        newest = (buffers[self._newest(shard)] for shard, buffers in enumerate(self._buffers))
        return min(int(row.lgvnum[self.number]) for row in newest)

    @property
    def may_push(self) -> bool:
        """True if all shards give credit for the next gradient. Raises OverflowError after the last version."""
        if self.joins:
            return False
        if self.version == MAX_VERSION:
            raise OverflowError(f"worker {self.number} has used up its {MAX_VERSION} versions")
        if not self.waits_for_credit:
            return True
        if self.version < self.warm_up:
            return self.consumed == self.version
        return self.config.may_push(self.version + 1, self.consumed)

    def join(self, version: int) -> None:
        """Continue after the gradient of zeros with this version, once every shard has a row with it.

        An older broadcast row does not count: a gradient sent after it would overwrite the one of zeros.
        """
        if self.joins and self.consumed >= version:
            self.version, self.joins = version, False

    def begin_read(self) -> Reading:
        """Choose the newest buffer of each shard by the version at its end."""
        buffers = tuple(self._newest(shard) for shard in range(self.config.servers))
        versions = tuple(self._buffers[shard][number].tail for shard, number in enumerate(buffers))
        return Reading(buffers, versions)

    def end_read(self, reading: Reading) -> tuple[Float32, list[int]] | None:
        """Return the model, and other workers' updates in it per shard; None if a write has begun since.

        The front version is read after the values, because a write changes it first.
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
        """Yield the writes of the next gradient, one per shard; the gradient is rounded to float32.

        ``others``: from ``end_read``. Raises ValueError if there is no credit for the gradient.
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
        local = self.layout.slot(number, shard)
        remote = ServerLayout(self.config, shard).slot(self.number, number)
        return Push(self.number, shard, local.base, remote.base, local.size)

    def _parts(self, values: Float32) -> list[Float32]:
        return np.split(values, self._shard_starts)


class Pusher(Protocol):
    """A worker and the version of its newest gradient."""

    number: int
    version: int


@dataclass(frozen=True)
class Tally:
    """Counts of gradients, summed over shards. A gradient is a (worker, version).

    - ``pushed``: gradients that workers have pushed.
    - ``applied``: updates of w.
    - ``lost``: gradients that were pushed and never applied.
    - ``repeated``: updates by a gradient after its first one.
    """

    pushed: int
    applied: int
    lost: int
    repeated: int

    @classmethod
    def of(
        cls, workers: Sequence[Pusher], servers: Sequence[ParameterServer], stopped: Container[int] = ()
    ) -> Tally:
        """Count the gradients of a finished run; gradients of ``stopped`` workers do not count as pushed."""
        pushed = {(w.number, v) for w in workers if w.number not in stopped for v in range(1, w.version + 1)}
        counts = [count for server in servers for count in server.applied.values()]
        lost = sum(1 for server in servers for key in pushed if not server.applied[key])
        return cls(len(pushed) * len(servers), sum(counts), lost, sum(count - 1 for count in counts))
