"""Configuration of a GLM node, its presets, and the shape of a data set spread over such nodes.

A node has engines, among which its columns are divided. An engine takes a micro-batch of 8 samples at a time,
one per bank. Its columns are cut into chunks of ``lanes``; the model memory holds a weight per column. Features
are processed bit by bit: a sample word is one bit plane of one chunk of one micro-batch, so a micro-batch takes
as many words as it has chunks times bits of precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from fanin.base.errors import DoesNotFit, InputError
from fanin.boards.facts import MEMORIES, BoardMemory
from fanin.fixed import DEFAULT_FRAC, DEFAULT_PRECISION, MAX_FRAC, MAX_PRECISION, MIN_FRAC
from fanin.job import SLOTS
from fanin.tree import MAX_TREE_WORKERS
from fanin.wire.aggregation import MAX_VALUES, MAX_WORKERS, Encap, Protocol

MICRO_BATCH = 8  # samples that go through an engine side by side, one per bank
LABEL_BITS = 32
MIN_ADDRESS_BITS = 16
MAX_ENGINES = 8
MAX_LANES = 64
MAX_DEPTH = 4096  # chunks; the widths of an engine's sums depend on it
MIN_PING_WIDTH = 16  # narrowest MAC, in bits, of a node that answers pings
MAX_MICRO_BATCHES = (1 << 24) - 1  # per mini-batch: the width of its register
MAX_RUN_MICRO_BATCHES = 1 << 13  # data-parallel, per worker and mini-batch: keeps gradients within 48 bits


# Fields of an entry in a sparse node's list, from bit 0; the last bit ends a micro-batch.
ENTRY_CHUNK_BITS = 16
ENTRY_ALLOW_BITS = 13
ENTRY_KIND_BITS = 2
ENTRY_BITS = ENTRY_CHUNK_BITS + ENTRY_ALLOW_BITS + ENTRY_KIND_BITS + 1  # last


class EntryKind(IntEnum):
    """Kind of an entry in a sparse node's list."""

    WORDS = 0  #: the words of a chunk follow, one per plane
    COPY = 1  #: only zeros, but the mini-batch changes the chunk elsewhere
    EMPTY = 2  #: the micro-batch has no chunk
    FINAL = 3  #: only zeros in the whole mini-batch: the chunk decays; nodes with ``l2``


class Partitioning(StrEnum):
    """Dimension of the data set that is spread over the workers: columns or samples."""

    MODEL_PARALLEL = "model-parallel"
    DATA_PARALLEL = "data-parallel"


class SparseChoice(StrEnum):
    """Layout of samples that a run requests: sparse, dense, or the better of both (docs/systems/sparse.md)."""

    AUTO = "auto"  #: sparse if the data are sparse enough and the nodes can be
    ON = "on"
    OFF = "off"


class ColumnRule(StrEnum):
    """Rule by which columns share the chunks of sparse nodes."""

    FREQUENCY = "frequency"  #: columns with the most non-zeros first
    NONE = "none"  #: order of the data


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _check(name: str, value: int, low: int, high: int, *, power_of_two: bool = False) -> None:
    if not low <= value <= high or (power_of_two and value & (value - 1)):
        kind = "a power of two" if power_of_two else "an integer"
        raise ValueError(f"{name} must be {kind} in {low}…{high}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class GlmConfig:
    """Parameters that are fixed when a node is elaborated; all others are run-time registers.

    Raises ValueError that names the parameter, its value and its limit.
    """

    name: str
    engines: int = 1  #: 1…8
    lanes: int = 64  #: features per word; a power of two, 2…64
    depth: int = 16  #: capacity of an engine's model memory in chunks; 1…4096
    sample_fifo: int = 512  #: capacity of an engine's replay FIFO in words; 8…65536
    slots: int = 64  #: most aggregation slots of a job; a power of two, 2…65536
    mac_width: int = 512  #: bits of the MAC streams; a power of two, 8…512
    label_width: int = LABEL_BITS * MICRO_BATCH  #: bits of the label port; a power of two, 32…256
    read_ahead: int = 512  #: words that a memory reader requests in advance; a power of two, 16…4096
    address_width: int = 64  #: address bits of samples and labels; 16…64
    compact: bool = False  #: smaller and slower where speed is not needed: counters are in a memory
    block_ram_fas: bool = False  #: waiting FAs are stored in block RAM, even with few slots
    encap: Encap = Encap.L2
    protocol: Protocol = Protocol.P4SGD
    frac: int = DEFAULT_FRAC  #: fractional bits of weights, activations and gradients; 6…28
    mode: Partitioning = Partitioning.MODEL_PARALLEL
    l2: bool = False  #: weights can decay (L2 regularisation); costs a shifter per lane
    vanilla: bool = False  #: a register can forbid that forward and backward of a mini-batch overlap
    gradient_values: int = MICRO_BATCH  #: gradients per packet, data-parallel; a power of two, 8…32
    sparse: bool = False  #: samples are lists of chunks that are not all zero (docs/systems/sparse.md)
    ping: bool = False  #: answers ARP and echo requests for its IPv4 address; needs UDP and a MAC of ≥ 16 bits

    def __post_init__(self) -> None:
        _check("engines", self.engines, 1, MAX_ENGINES)
        _check("lanes", self.lanes, 2, MAX_LANES, power_of_two=True)
        _check("depth", self.depth, 1, MAX_DEPTH)
        _check("sample_fifo", self.sample_fifo, MAX_PRECISION, 1 << 16)
        _check("slots", self.slots, 2, SLOTS, power_of_two=True)
        _check("mac_width", self.mac_width, 8, 512, power_of_two=True)
        _check("label_width", self.label_width, LABEL_BITS, LABEL_BITS * self.banks, power_of_two=True)
        _check("read_ahead", self.read_ahead, 16, 4096, power_of_two=True)
        _check("address_width", self.address_width, MIN_ADDRESS_BITS, 64)
        _check("frac", self.frac, MIN_FRAC, MAX_FRAC)
        object.__setattr__(self, "encap", Encap(self.encap))
        object.__setattr__(self, "protocol", Protocol(self.protocol))
        object.__setattr__(self, "mode", Partitioning(self.mode))
        if self.ping and (self.encap is not Encap.UDP or self.mac_width < MIN_PING_WIDTH):
            raise ValueError(
                f"ping must be off without an IPv4 address (encap {self.encap}), and with a mac_width below "
                f"{MIN_PING_WIDTH} ({self.mac_width})"
            )
        if self.sparse and self.sparse_obstacle:
            raise ValueError(
                "sparse must be off in data-parallel mode and with vanilla: an engine takes only some chunks"
            )
        if self.vanilla and self.mode is Partitioning.DATA_PARALLEL:
            raise ValueError("vanilla must be off in data-parallel mode: it is vanilla model parallelism")
        _check("gradient_values", self.gradient_values, MICRO_BATCH, MAX_VALUES, power_of_two=True)
        if self.mode is Partitioning.DATA_PARALLEL:
            if self.lanes % self.values:
                raise ValueError(
                    f"lanes must be a multiple of {self.values} in data-parallel mode, not {self.lanes}"
                )
        elif self.gradient_values != MICRO_BATCH:
            raise ValueError(
                f"gradient_values must be {MICRO_BATCH} unless mode is data-parallel, not "
                f"{self.gradient_values}"
            )

    @property
    def banks(self) -> int:
        """Samples that an engine takes in parallel: a micro-batch."""
        return MICRO_BATCH

    @property
    def values(self) -> int:
        """Values in a packet: activations of a micro-batch or, data-parallel, ``gradient_values`` gradients."""
        return self.gradient_values

    @property
    def word_bits(self) -> int:
        """Bits of a sample word: one bit plane of one chunk of one micro-batch."""
        return self.lanes * self.banks

    @property
    def sample_ports(self) -> int:
        """Number of AXI4 read ports for samples: two per engine, one for each half of a word."""
        return 2 * self.engines

    @property
    def read_ports(self) -> int:
        """Number of AXI4 read ports: samples, labels, and a sparse node's lists."""
        return self.sample_ports + 1 + self.sparse * self.engines

    @property
    def port_bits(self) -> int:
        """Data width of a sample port."""
        return self.word_bits // 2

    @property
    def loss_lanes(self) -> int:
        """Samples whose loss is computed in parallel; a micro-batch takes 8 / ``loss_lanes`` steps."""
        return self.label_width // LABEL_BITS

    @property
    def sparse_obstacle(self) -> str:
        """The option of this node that a sparse node cannot have; empty if it has none."""
        if self.mode is Partitioning.DATA_PARALLEL:
            return f"--mode {self.mode}"
        return "--vanilla" if self.vanilla else ""

    @property
    def columns(self) -> int:
        """Capacity of one worker's model memories in columns."""
        return self.engines * self.depth * self.lanes


def _presets(*configs: GlmConfig) -> Mapping[str, GlmConfig]:
    return MappingProxyType({config.name: config for config in configs})


def address_width(memory: BoardMemory) -> int:
    """Return the address width, in bits, with which a node reaches all of a memory."""
    return max(MIN_ADDRESS_BITS, memory.address_bits)


def _board(
    name: str, *, lanes: int, depth: int, sample_fifo: int = 512, block_ram_fas: bool = False
) -> GlmConfig:
    """Return a node for an ECP5 at 1 Gb/s with its samples in block RAM.

    All other parameters are the smallest at which nothing stalls: memory is near, and the network takes longer
    for a micro-batch than the loss unit.
    """
    return GlmConfig(
        name=name,
        lanes=lanes,
        depth=depth,
        sample_fifo=sample_fifo,
        slots=16,
        mac_width=32,
        label_width=LABEL_BITS,
        read_ahead=16,
        address_width=address_width(MEMORIES[name]),
        compact=True,
        block_ram_fas=block_ram_fas,
    )


PRESETS = _presets(
    GlmConfig(name="tiny", lanes=8, depth=4, sample_fifo=64, slots=4, mac_width=64),
    GlmConfig(name="demo"),
    GlmConfig(name="u280", engines=8, depth=4096, sample_fifo=16896, slots=256),
    _board("ecp5-25", lanes=2, depth=256, block_ram_fas=True),
    _board("ecp5-45", lanes=8, depth=128),
    _board("ecp5-85", lanes=8, depth=256, sample_fifo=1024, block_ram_fas=True),
)


def check_precision(precision: int) -> None:
    """Raise InputError for a number of bits that a feature cannot have."""
    if not 1 <= precision <= MAX_PRECISION:
        raise InputError(f"precision must be in 1…{MAX_PRECISION} bits, not {precision}")


def check_one_switch(workers: int) -> None:
    """Raise InputError for a number of workers that one switch cannot have."""
    if not 1 <= workers <= MAX_WORKERS:
        raise InputError(f"workers must be in 1…{MAX_WORKERS}, not {workers}: a switch has no more")


@dataclass(frozen=True, kw_only=True)
class TrainShape:
    """Run-time registers for a data set on ``workers`` nodes, derived and checked.

    ``columns`` includes the bias column. Raises InputError with one line that says what would fit.
    """

    node: GlmConfig
    workers: int
    samples: int
    columns: int
    batch: int
    precision: int = DEFAULT_PRECISION
    vanilla: bool = False  #: the backward pass of a mini-batch starts after its last FA; nothing overlaps

    def __post_init__(self) -> None:
        self._check_parameters()
        self._check_model_memory()
        if not self.node.sparse:
            self._check_sample_fifo()
        if self.vanilla:
            self._check_vanilla()

    def _check_parameters(self) -> None:
        if not 1 <= self.workers <= MAX_TREE_WORKERS:
            raise InputError(f"workers must be in 1…{MAX_TREE_WORKERS:,}, not {self.workers:,}")
        check_precision(self.precision)
        step = self.workers if self.data_parallel else MICRO_BATCH
        if self.batch < step or self.batch % step:
            prefix = f"data-parallel on {step} workers: " if self.data_parallel else ""
            raise InputError(f"{prefix}batch must be a positive multiple of {step}, not {self.batch}")
        if self.micro_batches > MAX_MICRO_BATCHES:
            raise InputError(f"batch must be at most {MAX_MICRO_BATCHES * MICRO_BATCH:,}, not {self.batch:,}")
        if self.data_parallel and self.micro_batches > MAX_RUN_MICRO_BATCHES:
            raise InputError(
                f"data-parallel: batch must be at most {self.workers} workers × "
                f"{MAX_RUN_MICRO_BATCHES * MICRO_BATCH:,} samples, not {self.batch:,}"
            )
        if self.samples < 1 or self.columns < 1:
            raise DoesNotFit(f"the data set is empty: {self.samples} samples of {self.columns} columns")

    def _check_model_memory(self) -> None:
        if self.chunks > self.node.depth:
            raise DoesNotFit(
                f"{self.columns:,} features need {self.chunks:,} chunks an engine, model memory holds "
                f"{self.node.depth:,}: {self._what_fits()}"
            )

    def _check_sample_fifo(self) -> None:
        if self.words_per_micro_batch > self.node.sample_fifo:
            raise DoesNotFit(
                f"a micro-batch is {self.chunks:,} chunks × {self.precision} bits = "
                f"{self.words_per_micro_batch:,} words an engine, the sample FIFO holds "
                f"{self.node.sample_fifo:,}: {self._what_fits()}, or a smaller --precision"
            )

    def _check_vanilla(self) -> None:
        """Check the capacity for a mini-batch: until the backward pass, words are in the FIFO, FAs in slots."""
        if not self.node.vanilla:
            raise InputError("vanilla: the nodes were made without it, so forward and backward overlap")
        words = self.micro_batches * self.words_per_micro_batch
        operations = self.node.slots // self.node.protocol.slots_per_operation
        max_batch = MICRO_BATCH * min(operations, self.node.sample_fifo // self.words_per_micro_batch)
        if self.batch > max_batch:
            raise DoesNotFit(
                f"vanilla: a mini-batch is {self.micro_batches:,} micro-batches of "
                f"{self.words_per_micro_batch:,} words an engine, {words:,} words; the sample FIFO holds "
                f"{self.node.sample_fifo:,}, the slots {operations:,} micro-batches: --batch {max_batch:,} fits"
            )

    def _what_fits(self) -> str:
        chunks = self.node.depth
        if not self.node.sparse:
            chunks = min(chunks, self.node.sample_fifo // self.precision)
        column_workers = 1 if self.data_parallel else self.workers
        columns = column_workers * self.node.engines * self.node.lanes * chunks
        with_workers = f"{self.workers} worker{'s' * (self.workers > 1)}"
        remedies = "--engines" if self.data_parallel else "--workers, --engines"
        return f"at most {columns:,} features fit with {with_workers}, or use {remedies} or --preset"

    @property
    def data_parallel(self) -> bool:
        """True if samples, not columns, are spread over the workers."""
        return self.node.mode is Partitioning.DATA_PARALLEL

    @property
    def columns_per_worker(self) -> int:
        """Columns per worker, including the padding of the last worker."""
        return self.columns if self.data_parallel else _ceil_div(self.columns, self.workers)

    @property
    def columns_per_engine(self) -> int:
        """Columns per engine, including the padding of the last engine."""
        return _ceil_div(self.columns_per_worker, self.node.engines)

    @property
    def chunks(self) -> int:
        """C: chunks (words of ``lanes`` weights) per engine."""
        return _ceil_div(self.columns_per_engine, self.node.lanes)

    @property
    def words_per_micro_batch(self) -> int:
        """C·s: words that an engine takes per micro-batch, one per cycle; of a sparse node at most."""
        return self.chunks * self.precision

    @property
    def mini_batches(self) -> int:
        """Mini-batches of an epoch; the last may be short."""
        return _ceil_div(self.samples, self.batch)

    @property
    def batch_per_worker(self) -> int:
        """Samples of a full mini-batch that one worker sees."""
        return self.batch // self.workers if self.data_parallel else self.batch

    @property
    def micro_batches(self) -> int:
        """M: micro-batches of a full mini-batch that one worker sees.

        In data-parallel mode the last micro-batch may be short.
        """
        return _ceil_div(self.batch_per_worker, MICRO_BATCH)

    @property
    def operations(self) -> int:
        """AllReduces of a full mini-batch: one per micro-batch or, data-parallel, per packet of gradients."""
        if not self.data_parallel:
            return self.micro_batches
        return self.node.engines * self.chunks * self.node.lanes // self.node.values

    @property
    def samples_per_worker(self) -> int:
        """Samples of an epoch that each worker sees.

        In data-parallel mode this is the count of worker 0, the largest. The other workers are padded with zero
        samples, so all workers have the same shape.
        """
        full, remainder = divmod(self.samples, self.batch)
        return full * self.batch_per_worker + min(remainder, self.batch_per_worker)

    @property
    def micro_batches_per_epoch(self) -> int:
        """Micro-batches of an epoch that each worker sees; the last of a mini-batch may be short."""
        full, remainder = divmod(self.samples, self.batch)
        return full * self.micro_batches + _ceil_div(min(remainder, self.batch_per_worker), MICRO_BATCH)
