"""The asynchronous parameter server: its sizes, where everything lies in memory, and what a version allows.

Contract: docs/systems/param-server.md. RTL, host code and golden model take addresses from here. All numbers
in memory are little-endian; addresses are in bytes. Source: RDMA-wild, section 4.2 and figure 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FLOAT_BYTES = 4
VERSION_BYTES = 4
MAX_VERSION = (1 << 8 * VERSION_BYTES) - 1  # nothing wraps: 0 is no gradient
MAX_PARAMETERS = 1 << 28  # with its trailer a gradient stays within one RDMA write of 2^31 bytes
MAX_WORKERS = 255
MAX_SLOTS = 8
MAX_SERVERS = 8
MAX_ROWS = 16
WIDTHS = (128, 256, 512)
MODEL_BUFFERS = 2  # of a worker, a shard
MODELS = ("lr", "lr-rff", "fcnn")  # that RDMA-wild trains (section 5)


class Algorithm(StrEnum):
    """Algorithm of the server.

    ``WILD`` : apply each gradient when it arrives
    ``SYNC`` : wait for the gradients of all workers
    """

    WILD = "wild"
    SYNC = "sync"


class PushAfter(StrEnum):
    """Event after which the asynchronous server pushes w.

    ``GRADIENT`` : every update by a gradient
    ``SCAN`` : a scan of the table, to all workers whose gradients it found (algorithm 1)
    """

    GRADIENT = "gradient"
    SCAN = "scan"


class Receivers(StrEnum):
    """Workers that get a row.

    ``BARTER`` : those whose gradients are new in it
    ``BROADCAST`` : all
    """

    BARTER = "barter"
    BROADCAST = "broadcast"


@dataclass(frozen=True, kw_only=True)
class ParamServerConfig:
    """Sizes that all servers and workers of a job share.

    ``parameters`` float32 values are the model w; each of ``workers`` has ``slots`` places for gradients in the
    table (1: the paper's); ``servers`` own a shard of w each, of which they keep ``rows`` versions, so that one
    can be sent again while the next is made; ``width`` is a memory word in bits. Raises ValueError that names
    parameter, value and limit.
    """

    parameters: int
    workers: int = 15
    slots: int = 1
    servers: int = 1
    rows: int = 8
    width: int = 512

    def __post_init__(self) -> None:
        for name, most in (
            ("parameters", MAX_PARAMETERS),
            ("workers", MAX_WORKERS),
            ("slots", MAX_SLOTS),
            ("servers", MAX_SERVERS),
            ("rows", MAX_ROWS),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= most:
                raise ValueError(f"{name} must be 1 to {most}, not {value!r}")
        if self.width not in WIDTHS:
            raise ValueError(f"width must be one of {', '.join(map(str, WIDTHS))}, not {self.width!r}")
        if self.servers > self.words:
            raise ValueError(
                f"servers must be at most the {self.words} words of {self.parameters} parameters, "
                f"not {self.servers!r}"
            )

    @property
    def lanes(self) -> int:
        """Float32 values of a word."""
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
        """Gradients, at most: to a server come those of all workers, from a worker go those to all servers."""
        return max(self.workers, self.servers) * self.slots

    def shard_start(self, shard: int) -> int:
        """The first value of w that a server owns; its shard ends where the next one's begins.

        Shards are whole words, and the first ones have one more where words do not divide.
        """
        each, more = divmod(self.words, self.servers)
        return min((shard * each + min(shard, more)) * self.lanes, self.parameters)

    def shard_values(self, shard: int) -> int:
        """How many values of w a server owns."""
        return self.shard_start(shard + 1) - self.shard_start(shard)

    def shard_bytes(self, shard: int) -> int:
        """Bytes of a server's values of w, or of a gradient, in whole words; those behind the values are 0."""
        return self.whole_words(self.shard_values(shard) * FLOAT_BYTES)

    def slot_of(self, version: int) -> int:
        """The slot that a worker's gradient of this version takes."""
        return version % self.slots

    def may_push(self, version: int, consumed: int) -> bool:
        """Whether a worker may compute and push this version, if ``consumed`` is its LGVnum as it knows it.

        With one slot: only when the one before has been consumed (algorithm 2, line 8).
        """
        return version - consumed <= self.slots

    def row_of(self, version: int) -> int:
        """The server's row that holds w after so many updates: an update reads one row and writes the next."""
        return version % self.rows

    def buffer_of(self, consumed: int) -> int:
        """The worker's model buffer that gets the model with this LGVnum of its own: they take turns."""
        return consumed % MODEL_BUFFERS

    def whole_words(self, size: int) -> int:
        """Bytes of the words that hold ``size`` bytes."""
        return -(-size // self.word_bytes) * self.word_bytes


@dataclass(frozen=True)
class RowLayout:
    """A model row from ``base``: at the server, and in each of a worker's buffers.

    A head word that ends with the version of w; w; then the LGVnum vector, one entry a worker, in whole words
    of which the last one ends with the version of w again. A write of the row, in increasing address order,
    leaves both versions equal only when all between them has arrived. In front are zeros: Wireshark takes a
    payload that begins with an EtherType and two zeros for IP over InfiniBand, and versions 6 and 8 are such.
    """

    config: ParamServerConfig
    shard: int
    base: int

    @property
    def head_version(self) -> int:
        """The version of w in front: written first."""
        return self.w - VERSION_BYTES

    @property
    def w(self) -> int:
        """The first value."""
        return self.base + self.config.word_bytes

    @property
    def lgvnum(self) -> int:
        """Worker 0's LGVnum; the others follow."""
        return self.w + self.config.shard_bytes(self.shard)

    @property
    def tail_version(self) -> int:
        """The version of w behind everything: written last."""
        return self.base + self.size - VERSION_BYTES

    @property
    def size(self) -> int:
        """Bytes of the row, whole words."""
        vector = self.config.whole_words((self.config.workers + 1) * VERSION_BYTES)
        return self.lgvnum - self.base + vector


@dataclass(frozen=True)
class SlotLayout:
    """A gradient of a shard from ``base``: at the server, and where a worker keeps it until it is sent.

    The gradient, then a trailer word that begins with ``others`` and ends with GVnum: the last bytes of the one
    write that carries both.
    """

    config: ParamServerConfig
    shard: int
    base: int

    @property
    def gradient(self) -> int:
        """The first value."""
        return self.base

    @property
    def others(self) -> int:
        """How many updates by other workers the model had that the gradient was computed on."""
        return self.base + self.config.shard_bytes(self.shard)

    @property
    def gvnum(self) -> int:
        """The gradient's version: written last."""
        return self.base + self.size - VERSION_BYTES

    @property
    def size(self) -> int:
        """Bytes of gradient and trailer, whole words."""
        return self.config.shard_bytes(self.shard) + self.config.word_bytes


@dataclass(frozen=True)
class ServerLayout:
    """A server's memory from ``base``: its model rows, then the gradient table.

    The slots of a worker lie together, so that they are one region that only its queue pair may write. Raises
    ValueError if ``base`` is not a word's.
    """

    config: ParamServerConfig
    shard: int
    base: int = 0

    def __post_init__(self) -> None:
        _check_base(self.config, self.base)

    def row(self, number: int) -> RowLayout:
        """Where a version of w and its LGVnum vector are."""
        first = RowLayout(self.config, self.shard, self.base)
        return RowLayout(self.config, self.shard, self.base + number * first.size)

    def slot(self, worker: int, slot: int) -> SlotLayout:
        """Where a worker's gradient of a slot is."""
        first = SlotLayout(self.config, self.shard, self.row(self.config.rows).base)
        number = worker * self.config.slots + slot
        return SlotLayout(self.config, self.shard, first.base + number * first.size)

    def region(self, worker: int) -> tuple[int, int]:
        """Address and bytes of what a worker may write."""
        own = self.slot(worker, 0)
        return own.base, self.config.slots * own.size

    @property
    def size(self) -> int:
        """Bytes of rows and table."""
        return self.slot(self.config.workers, 0).base - self.base


@dataclass(frozen=True)
class WorkerLayout:
    """A worker's memory from ``base``: per shard its model buffers; then per slot and shard the gradient.

    A shard's buffers lie together, so that they are one region that only its server may write. Raises
    ValueError if ``base`` is not a word's.
    """

    config: ParamServerConfig
    base: int = 0

    def __post_init__(self) -> None:
        _check_base(self.config, self.base)

    def buffer(self, shard: int, number: int) -> RowLayout:
        """One of a shard's model buffers."""
        before = sum(MODEL_BUFFERS * self._row(other).size for other in range(shard))
        row = self._row(shard)
        return RowLayout(self.config, shard, self.base + before + number * row.size)

    def region(self, shard: int) -> tuple[int, int]:
        """Address and bytes of what a shard's server may write."""
        first = self.buffer(shard, 0)
        return first.base, MODEL_BUFFERS * first.size

    def slot(self, slot: int, shard: int) -> SlotLayout:
        """Where a shard's part of a gradient waits until its write completes."""
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
