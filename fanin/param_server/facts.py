"""Asynchronous parameter server: sizes, memory layout, and the meaning of versions.

Contract: docs/systems/param-server.md. RTL, host code and golden model take addresses from here. All numbers
in memory are little-endian; addresses are in bytes. Source: RDMA-wild, section 4.2 and figure 4.

A worker numbers its gradients 1, 2, 3, …: the gradient's version, GVnum. LGVnum is, for each worker, the
version of its newest gradient that the server has applied. A row is a server's shard of the model w, with the
vector of all workers' LGVnums: a worker sees in it how many of its gradients have been consumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FLOAT_BYTES = 4
VERSION_BYTES = 4
MAX_VERSION = (1 << 8 * VERSION_BYTES) - 1  # versions never wrap; 0 means no gradient
MAX_PARAMETERS = 1 << 28  # a gradient with its trailer fits one RDMA write of 2^31 bytes
MAX_WORKERS = 255
MAX_SLOTS = 8
MAX_SERVERS = 8
MAX_ROWS = 16
WIDTHS = (128, 256, 512)
MODEL_BUFFERS = 2  # per worker and shard
MODELS = ("lr", "lr-rff", "fcnn")  # models that RDMA-wild trains (section 5)


class Algorithm(StrEnum):
    """Algorithm of the server.

    - ``WILD``: apply each gradient when it arrives.
    - ``SYNC``: wait for the gradients of all workers.
    """

    WILD = "wild"
    SYNC = "sync"


class PushAfter(StrEnum):
    """Event after which the asynchronous server pushes w.

    - ``GRADIENT``: every update by a gradient.
    - ``SCAN``: a scan of the table; w goes to all workers whose gradients it found (algorithm 1).
    """

    GRADIENT = "gradient"
    SCAN = "scan"


class Receivers(StrEnum):
    """Workers that get a row.

    - ``BARTER``: those whose gradients are new in it.
    - ``BROADCAST``: all workers.
    """

    BARTER = "barter"
    BROADCAST = "broadcast"


@dataclass(frozen=True, kw_only=True)
class ParamServerConfig:
    """Sizes that all servers and workers of a job share. Raises ValueError that names parameter, value and
    limit.

    - ``parameters``: float32 values of the model w.
    - ``workers``: number of workers.
    - ``slots``: gradients per worker in the table; 1 in the paper.
    - ``servers``: number of servers; each owns a shard of w.
    - ``rows``: versions of its shard that a server keeps, so that one can be sent while the next is made.
    - ``width``: bits of a memory word.
    """

    parameters: int
    workers: int = 15
    slots: int = 1
    servers: int = 1
    rows: int = 8
    width: int = 512

    def __post_init__(self) -> None:
        for name, limit in (
            ("parameters", MAX_PARAMETERS),
            ("workers", MAX_WORKERS),
            ("slots", MAX_SLOTS),
            ("servers", MAX_SERVERS),
            ("rows", MAX_ROWS),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= limit:
                raise ValueError(f"{name} must be 1 to {limit}, not {value!r}")
        if self.width not in WIDTHS:
            raise ValueError(f"width must be one of {', '.join(map(str, WIDTHS))}, not {self.width!r}")
        if self.servers > self.words:
            raise ValueError(
                f"servers must be at most the {self.words} words of {self.parameters} parameters, "
                f"not {self.servers!r}"
            )

    @property
    def lanes(self) -> int:
        """Float32 values per word."""
        return self.word_bytes // FLOAT_BYTES

    @property
    def word_bytes(self) -> int:
        """Bytes of a word; everything that a server streams is aligned to it."""
        return self.width // 8

    @property
    def words(self) -> int:
        """Words of w."""
        return -(-self.parameters // self.lanes)

    @property
    def writes_on_a_link(self) -> int:
        """Most gradients in flight on one link: of all workers to a server, or of a worker to all servers."""
        return max(self.workers, self.servers) * self.slots

    def shard_start(self, shard: int) -> int:
        """Return the index of the first value of w that a server owns; the next shard starts at this one's end.

        Shards are whole words. If the words do not divide evenly, the first shards have one more.
        """
        words, longer = divmod(self.words, self.servers)  # words of a shard; shards with one word more
        return min((shard * words + min(shard, longer)) * self.lanes, self.parameters)

    def shard_values(self, shard: int) -> int:
        """Return the number of values of w that a server owns."""
        return self.shard_start(shard + 1) - self.shard_start(shard)

    def shard_bytes(self, shard: int) -> int:
        """Return the bytes of a server's part of w, or of a gradient: whole words, padded with zeros."""
        return self.whole_words(self.shard_values(shard) * FLOAT_BYTES)

    def slot_of(self, version: int) -> int:
        """Return the slot for a worker's gradient of this version."""
        return version % self.slots

    def may_push(self, version: int, consumed: int) -> bool:
        """Return whether a worker may compute and push this version, given the newest LGVnum it knows.

        With one slot, the previous gradient must have been consumed (algorithm 2, line 8).
        """
        return version - consumed <= self.slots

    def row_of(self, version: int) -> int:
        """Return the server's row for this version of w: an update reads one row and writes the next."""
        return version % self.rows

    def buffer_of(self, consumed: int) -> int:
        """Return the worker's model buffer for the model with this LGVnum of its own; buffers alternate."""
        return consumed % MODEL_BUFFERS

    def whole_words(self, size: int) -> int:
        """Return the bytes of the words that hold ``size`` bytes."""
        return -(-size // self.word_bytes) * self.word_bytes


@dataclass(frozen=True)
class RowLayout:
    """A model row from ``base``, at the server and in each of a worker's buffers.

    The row consists of:

    1. a head word, zeros that end with the version of w;
    2. w;
    3. the LGVnum vector, one entry per worker, in whole words; the last word ends with the version of w again.

    A write of the row goes in increasing address order, so both versions are equal only if everything between
    them has arrived. Wireshark takes a payload that begins with an EtherType and two zeros for IP over
    InfiniBand. Without the zeros in front, versions 6 and 8 would look like that.
    """

    config: ParamServerConfig
    shard: int
    base: int

    @property
    def head_version(self) -> int:
        """Address of the version of w in front, which is written first."""
        return self.w - VERSION_BYTES

    @property
    def w(self) -> int:
        """Address of the first value of w."""
        return self.base + self.config.word_bytes

    @property
    def lgvnum(self) -> int:
        """Address of worker 0's LGVnum; those of other workers follow."""
        return self.w + self.config.shard_bytes(self.shard)

    @property
    def tail_version(self) -> int:
        """Address of the version of w at the end, which is written last."""
        return self.base + self.size - VERSION_BYTES

    @property
    def size(self) -> int:
        """Bytes of the row, in whole words."""
        vector = self.config.whole_words((self.config.workers + 1) * VERSION_BYTES)
        return self.lgvnum - self.base + vector


@dataclass(frozen=True)
class SlotLayout:
    """A gradient of a shard from ``base``: in the server's table, and at the worker until it is sent.

    The gradient is followed by a trailer word that begins with ``others`` and ends with GVnum. One write
    carries gradient and trailer, so GVnum is written last.
    """

    config: ParamServerConfig
    shard: int
    base: int

    @property
    def gradient(self) -> int:
        """Address of the first value of the gradient."""
        return self.base

    @property
    def others(self) -> int:
        """Address of the number of other workers' updates in the model that the gradient was computed on."""
        return self.base + self.config.shard_bytes(self.shard)

    @property
    def gvnum(self) -> int:
        """Address of the gradient's version, which is written last."""
        return self.base + self.size - VERSION_BYTES

    @property
    def size(self) -> int:
        """Bytes of gradient and trailer, in whole words."""
        return self.config.shard_bytes(self.shard) + self.config.word_bytes


@dataclass(frozen=True)
class ServerLayout:
    """A server's memory from ``base``: its model rows, then the gradient table.

    A worker's slots are adjacent: they form one region that only the worker's queue pair may write. Raises
    ValueError if ``base`` is not aligned to a word.
    """

    config: ParamServerConfig
    shard: int
    base: int = 0

    def __post_init__(self) -> None:
        _check_base(self.config, self.base)

    def row(self, number: int) -> RowLayout:
        """Return the layout of a model row."""
        first = RowLayout(self.config, self.shard, self.base)
        return RowLayout(self.config, self.shard, self.base + number * first.size)

    def slot(self, worker: int, slot: int) -> SlotLayout:
        """Return the layout of one of a worker's slots."""
        first = SlotLayout(self.config, self.shard, self.row(self.config.rows).base)
        number = worker * self.config.slots + slot
        return SlotLayout(self.config, self.shard, first.base + number * first.size)

    def region(self, worker: int) -> tuple[int, int]:
        """Return address and bytes of the region that a worker may write."""
        first = self.slot(worker, 0)
        return first.base, self.config.slots * first.size

    @property
    def size(self) -> int:
        """Bytes of rows and table."""
        return self.slot(self.config.workers, 0).base - self.base


@dataclass(frozen=True)
class WorkerLayout:
    """A worker's memory from ``base``: per shard its model buffers; then per slot and shard the gradient.

    A shard's buffers are adjacent: they form one region that only the shard's server may write. Raises
    ValueError if ``base`` is not aligned to a word.
    """

    config: ParamServerConfig
    base: int = 0

    def __post_init__(self) -> None:
        _check_base(self.config, self.base)

    def buffer(self, shard: int, number: int) -> RowLayout:
        """Return the layout of one of a shard's model buffers."""
        offset = sum(MODEL_BUFFERS * self._row(other).size for other in range(shard))
        row = self._row(shard)
        return RowLayout(self.config, shard, self.base + offset + number * row.size)

    def region(self, shard: int) -> tuple[int, int]:
        """Return address and bytes of the region that a shard's server may write."""
        first = self.buffer(shard, 0)
        return first.base, MODEL_BUFFERS * first.size

    def slot(self, slot: int, shard: int) -> SlotLayout:
        """Return the layout of a shard's part of a gradient, which waits here until its write completes."""
        sizes = [SlotLayout(self.config, other, 0).size for other in range(self.config.servers)]
        base = self._buffers_end + slot * sum(sizes) + sum(sizes[:shard])
        return SlotLayout(self.config, shard, base)

    @property
    def size(self) -> int:
        """Bytes of buffers and gradients."""
        return self.slot(self.config.slots, 0).base - self.base

    @property
    def _buffers_end(self) -> int:
        base, size = self.region(self.config.servers - 1)
        return base + size

    def _row(self, shard: int) -> RowLayout:
        return RowLayout(self.config, shard, 0)


def _check_base(config: ParamServerConfig, base: int) -> None:
    if base < 0 or base % config.word_bytes:
        raise ValueError(f"base must be a multiple of {config.word_bytes} bytes, not {base!r}")
