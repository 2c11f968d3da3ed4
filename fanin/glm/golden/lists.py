"""Lists and words of a sparse node: its two regions of each engine in memory (docs/systems/sparse.md).

The list names the chunks of each micro-batch in the order in which the engine takes them; the words have the
bit planes of these chunks only. Samples are a CSR matrix in layout space (``fanin.glm.golden.order``), or a
stream of CSR blocks. Packing takes a block of mini-batches at a time and looks one mini-batch ahead. Time is
proportional to the non-zeros and to the micro-batches times the engines; memory to those of a block.

Steps, for one worker and block:

1. ``_Used``: chunks with non-zeros of each micro-batch.
2. ``_Hazards``: chunks that each mini-batch touches, the place of their final writes, and their ``allow``.
3. ``_Entries``: WORDS, COPY and EMPTY entries of each micro-batch, in order.
4. Bits of the non-zeros, at the places of their words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.glm.facts import (
    ENTRY_ALLOW_BITS,
    ENTRY_CHUNK_BITS,
    ENTRY_KIND_BITS,
    MICRO_BATCH,
    EntryKind,
    TrainShape,
)
from fanin.glm.golden.quantise import canonical

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

#: CSR codes of all samples, or blocks of them in order. All blocks but the last have whole mini-batches.
RowBlocks: TypeAlias = sparse.csr_matrix | Iterable[sparse.csr_matrix]

MAX_CHUNKS = 1 << ENTRY_CHUNK_BITS
MAX_ALLOW = (1 << ENTRY_ALLOW_BITS) - 1
NONZEROS_AT_ONCE = 1 << 18  # bounds the memory of a block: words have up to ``lanes`` · s bytes a non-zero
ROWS_AT_ONCE = 1 << 16


class Entries(NamedTuple):
    """Fields of a list's entries, each as an array with a place per entry."""

    chunk: npt.NDArray[np.uint32]  #: chunk of the engine; 0 if EMPTY
    allow: npt.NDArray[np.uint32]  #: most missing final writes of earlier mini-batches
    kind: npt.NDArray[np.uint32]  #: a ``EntryKind``
    last: Bool  #: True for the last entry of a micro-batch


def encode_entries(
    chunk: npt.ArrayLike, allow: npt.ArrayLike, kind: npt.ArrayLike, last: npt.ArrayLike
) -> npt.NDArray[np.uint32]:
    """Return the entries of these fields, uint32. Raises ValueError if a field exceeds its bits."""
    word = np.zeros(np.shape(chunk), dtype=np.uint32)
    start = 0
    fields = {"chunk": (chunk, ENTRY_CHUNK_BITS), "allow": (allow, ENTRY_ALLOW_BITS)}
    fields |= {"kind": (kind, ENTRY_KIND_BITS), "last": (last, 1)}
    for name, (values, bits) in fields.items():
        field = np.asarray(values, dtype=np.int64)
        if field.size and (field.min() < 0 or field.max() >> bits):
            raise ValueError(f"{name} must be in 0…{(1 << bits) - 1}, not {field.min()}…{field.max()}")
        word |= field.astype(np.uint32) << np.uint32(start)
        start += bits
    return word


def decode_entries(entries: npt.NDArray[np.uint32]) -> Entries:
    """Return the fields of a list's entries."""
    starts = (0, ENTRY_CHUNK_BITS, ENTRY_CHUNK_BITS + ENTRY_ALLOW_BITS)
    chunk, allow, kind = (
        (entries >> np.uint32(start) & np.uint32((1 << bits) - 1)).astype(np.uint32)
        for start, bits in zip(starts, (ENTRY_CHUNK_BITS, ENTRY_ALLOW_BITS, ENTRY_KIND_BITS), strict=True)
    )
    return Entries(chunk, allow, kind, entries >> np.uint32(31) == 1)


class EngineLists(NamedTuple):
    """List and words of one engine over some mini-batches."""

    entries: npt.NDArray[np.uint32]  #: encoded entries
    words: Bytes  #: uint8[words, bytes of a word]: s planes of each WORDS entry, most significant first


@dataclass(frozen=True, eq=False)
class ListBlock:
    """Lists and words of one worker over some whole mini-batches.

    The blocks of an epoch, joined engine by engine, are the engines' two regions.
    """

    mini_batches: range  #: mini-batches of the epoch that the block covers
    engines: tuple[EngineLists, ...]


@dataclass(frozen=True, eq=False)
class ListTotals:
    """Sizes of the lists and words of some engines over an epoch.

    An item is a cycle of the engine: a word, a COPY or an EMPTY.
    """

    most_items: Int64  #: [engine]: most items of a micro-batch; they must fit the sample FIFO
    mini_batch_words: Int64  #: [engine, mini-batch]
    mini_batch_entries: Int64  #: [engine, mini-batch]
    mini_batch_items: Int64  #: [engine, mini-batch]
    final_writes: Int64  #: [engine, mini-batch]: WORDS and COPY entries of the last micro-batch

    @property
    def words(self) -> Int64:
        """Words of an epoch, [engine]."""
        return self.mini_batch_words.sum(axis=1)

    @property
    def entries(self) -> Int64:
        """Entries of an epoch, [engine]."""
        return self.mini_batch_entries.sum(axis=1)

    @property
    def items(self) -> Int64:
        """Items of an epoch, [engine]."""
        return self.mini_batch_items.sum(axis=1)


def pack_lists(features: RowBlocks, shape: TrainShape, worker: int) -> Iterator[ListBlock]:
    """Yield a worker's lists and words of an epoch, some mini-batches at a time.

    ``features``: uint8 codes, (``shape.samples``, ``shape.columns``). Explicit zeros are dropped. A block of
    the result is a block of the stream or a part of one, so a stream of single mini-batches is slow.

    Raises ValueError, while iterating, for features of another shape or type, codes above ``shape.precision``
    bits, a data-parallel shape, more than 65,536 chunks an engine, or more than 8,191 final writes of an engine
    in a mini-batch.
    """
    grid = _Grid.of(shape, worker)
    before = _Touched.none()
    blocks = _row_blocks(features, shape)
    first, rows = 0, next(blocks, None)
    while rows is not None:
        successor = next(blocks, None)
        used = _Used.of(rows, grid)
        touched = _Touched.of(used, grid)
        after = _Touched.none()
        if successor is not None:
            after = _Touched.of(_Used.of(successor[: shape.batch], grid), grid)
        hazards = _Hazards.of(before, touched, after, used.mini_batches, grid)
        entries = _Entries.of(used, hazards, grid)
        covered = range(first, first + used.mini_batches)
        yield ListBlock(covered, _engine_lists(entries, used, grid))
        before = touched.only(used.mini_batches - 1)
        first, rows = covered.stop, successor


def totals(features: RowBlocks, shape: TrainShape, worker: int) -> ListTotals:
    """Count a worker's words and entries of an epoch without building them; errors as in ``pack_lists``."""
    return _totals(features, shape, _Grid.of(shape, worker))


def totals_of_all(features: RowBlocks, shape: TrainShape) -> ListTotals:
    """Count the words and entries of all engines, numbered worker · E + engine, in one pass.

    ``features`` must be in layout space, where all engines have equally many columns. Errors: as in
    ``pack_lists``.
    """
    engines = shape.workers * shape.node.engines
    if shape.columns != engines * shape.chunks * shape.node.lanes:
        raise ValueError(f"columns must fill all chunks of {engines} engines, not be {shape.columns:,}")
    grid = replace(_Grid.of(shape, 0), columns=range(shape.columns), engines=engines)
    return _totals(features, shape, grid)


def _totals(features: RowBlocks, shape: TrainShape, grid: _Grid) -> ListTotals:
    most = np.zeros(grid.engines, dtype=np.int64)
    sizes = np.zeros((4, grid.engines, shape.mini_batches), dtype=np.int64)
    first = 0
    for rows in _row_blocks(features, shape):
        used = _Used.of(rows, grid)
        words, entries, items, writes = _sizes(used, grid)
        most = np.maximum(most, items.max(axis=1))
        starts = np.arange(0, used.micro_batches, grid.micro_batches)
        part = sizes[:, :, first : first + used.mini_batches]
        part[:3] = np.add.reduceat(np.stack([words, entries, items]), starts, axis=-1)
        part[3] = writes
        first += used.mini_batches
    return ListTotals(most, *sizes)


@dataclass(frozen=True)
class _Grid:
    """Numbers of a run on one worker that every step of packing uses."""

    columns: range  # that the worker holds
    engines: int
    chunks: int  # of an engine
    lanes: int
    engine_columns: int
    micro_batches: int  # of a full mini-batch
    precision: int

    @classmethod
    def of(cls, shape: TrainShape, worker: int) -> _Grid:
        if shape.data_parallel:
            raise ValueError("sparse samples need model-parallel nodes: the shape is data-parallel")
        if shape.chunks > MAX_CHUNKS:
            raise ValueError(f"an engine's list can name {MAX_CHUNKS:,} chunks, not {shape.chunks:,}")
        start = worker * shape.columns_per_worker
        columns = range(start, min(start + shape.columns_per_worker, shape.columns))
        node = shape.node
        sizes = (shape.columns_per_engine, shape.micro_batches, shape.precision)
        return cls(columns, node.engines, shape.chunks, node.lanes, *sizes)


def _row_blocks(features: RowBlocks, shape: TrainShape) -> Iterator[sparse.csr_matrix]:
    """Yield checked blocks of whole mini-batches, cut to a limited number of non-zeros and rows."""
    samples, short = 0, False
    blocks: Iterable[sparse.csr_matrix] = [features] if sparse.issparse(features) else features
    for rows in blocks:
        if rows.shape[0] == 0:
            continue
        if short:
            raise ValueError(f"only the last block may end within a mini-batch of {shape.batch:,} samples")
        _check_codes(rows, shape)
        samples, short = samples + rows.shape[0], rows.shape[0] % shape.batch != 0
        if samples > shape.samples:
            break
        rows = canonical(rows)
        most = min(ROWS_AT_ONCE, NONZEROS_AT_ONCE * rows.shape[0] // max(rows.nnz, 1))
        step = max(most // shape.batch, 1) * shape.batch
        for start in range(0, rows.shape[0], step):
            yield rows[start : start + step]
    if samples != shape.samples:
        raise ValueError(f"features must have {shape.samples:,} samples, not {samples:,}")


def _check_codes(rows: sparse.csr_matrix, shape: TrainShape) -> None:
    if rows.shape[1] != shape.columns:
        raise ValueError(f"features must have {shape.columns:,} columns, not {rows.shape[1]:,}")
    if rows.dtype != np.uint8:
        raise ValueError(f"features must be uint8 codes, not {rows.dtype}")
    if rows.nnz and rows.data.max() >> shape.precision:
        raise ValueError(f"codes must have {shape.precision} bits, not {rows.data.max():b} in binary")


class _Used(NamedTuple):
    """Chunks with non-zeros, in order of engine, micro-batch and chunk; and the non-zeros of one worker."""

    engine: Int64
    micro_batch: Int64  # of the block
    chunk: Int64
    nonzero_use: Int64  # for each non-zero, index of its chunk in the arrays above
    nonzero_bit: Int64  # place in its words: lanes · sample + lane
    nonzero_code: Bytes
    micro_batches: int  # of the block
    mini_batches: int  # of the block

    @classmethod
    def of(cls, rows: sparse.csr_matrix, grid: _Grid) -> _Used:
        held = (rows.indices >= grid.columns.start) & (rows.indices < grid.columns.stop) & (rows.data != 0)
        sample = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[held]
        engine, place = np.divmod(rows.indices[held] - np.int64(grid.columns.start), grid.engine_columns)
        chunk, lane = np.divmod(place, grid.lanes)
        micro_batches = -(-rows.shape[0] // MICRO_BATCH)
        micro_batch, b = np.divmod(sample, MICRO_BATCH)
        key = (engine * micro_batches + micro_batch) * grid.chunks + chunk
        uses, nonzero_use = np.unique(key, return_inverse=True)
        turn, chunk = np.divmod(uses, grid.chunks)
        mini_batches = -(-micro_batches // grid.micro_batches)
        nonzeros = (nonzero_use, grid.lanes * b + lane, rows.data[held])
        return cls(*np.divmod(turn, micro_batches), chunk, *nonzeros, micro_batches, mini_batches)

    def mini_batch(self, grid: _Grid) -> Int64:
        """Return the mini-batch of each use, counted from the block's first."""
        return self.micro_batch // grid.micro_batches

    def last_micro_batches(self, grid: _Grid) -> Int64:
        """Return the last micro-batch of each mini-batch of the block."""
        ends = np.arange(1, self.mini_batches + 1) * grid.micro_batches
        return np.minimum(ends, self.micro_batches) - 1


class _Touched(NamedTuple):
    """Chunks that mini-batches touch; each once for each mini-batch."""

    mini_batch: Int64  # of the block
    place: Int64  # engine · C + chunk
    first: Int64  # first micro-batch of the mini-batch that uses the chunk

    @classmethod
    def none(cls) -> _Touched:
        return cls(*np.zeros((3, 0), dtype=np.int64))

    @classmethod
    def of(cls, used: _Used, grid: _Grid) -> _Touched:
        place = used.engine * grid.chunks + used.chunk
        key = used.mini_batch(grid) * (grid.engines * grid.chunks) + place
        touched, first_use = np.unique(key, return_index=True)  # uses are in order of micro-batches
        first = used.micro_batch[first_use] % grid.micro_batches
        return cls(*np.divmod(touched, grid.engines * grid.chunks), first)

    def only(self, mini_batch: int) -> _Touched:
        """Return the chunks of one mini-batch."""
        return _Touched(*(values[self.mini_batch == mini_batch] for values in self))


class _Hazards(NamedTuple):
    """Touched chunks of a block, its predecessor (mini-batch 0) and its successor; sorted by ``key``.

    Mini-batches of the block have the numbers 1…m. A *turn* is engine · span + mini-batch; span exceeds the
    number of mini-batches, so that turns of different engines are no neighbours.
    """

    key: Int64  # turn · C + chunk
    turn: Int64
    write: Int64  # place of the chunk's final write among those of the turn
    allow: Int64
    writes: Int64  # for each turn, its number of final writes
    span: int

    @classmethod
    def of(cls, before: _Touched, block: _Touched, after: _Touched, mini_batches: int, grid: _Grid) -> _Hazards:
        span = mini_batches + 3
        numbers = [
            np.zeros_like(before.place),
            block.mini_batch + 1,
            np.full_like(after.place, mini_batches + 1),
        ]
        engine, chunk = np.divmod(np.concatenate([before.place, block.place, after.place]), grid.chunks)
        key = (engine * span + np.concatenate(numbers)) * grid.chunks + chunk
        order = np.argsort(key)
        key, first = key[order], np.concatenate([before.first, block.first, after.first])[order]
        turn, chunk = np.divmod(key, grid.chunks)

        again, index = _find(key, key + grid.chunks)  # the same chunk in the next turn
        needed = np.where(again, first[index], grid.micro_batches)
        write_order = np.argsort((turn * (grid.micro_batches + 1) + needed) * grid.chunks + chunk)
        writes = np.bincount(turn, minlength=grid.engines * span)
        if writes.max() > MAX_ALLOW:
            raise ValueError(f"an engine's mini-batch has {writes.max():,} chunks, at most {MAX_ALLOW:,} fit")
        write = np.empty_like(key)
        write[write_order] = np.arange(len(key)) - (np.cumsum(writes) - writes)[turn]

        repeated, index = _find(key, key - grid.chunks)  # the same chunk in the previous turn
        previous = writes[turn - 1]
        allow = np.where(repeated, previous - 1 - write[index], previous)
        return cls(key, turn, write, allow, writes, span)


def _find(keys: Int64, wanted: Int64) -> tuple[Bool, Int64]:
    """Return which wanted values are among sorted ``keys``, and their indices; others have any valid index."""
    if not len(keys):
        return np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int64)
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return keys[index] == wanted, index


class _Entries(NamedTuple):
    """Entries of a block's lists in order of engine and micro-batch."""

    engine: Int64
    encoded: npt.NDArray[np.uint32]
    use: Int64  # for each WORDS entry, index of its chunk in ``_Used``

    @classmethod
    def of(cls, used: _Used, hazards: _Hazards, grid: _Grid) -> _Entries:
        """Return WORDS, COPY and EMPTY entries, sorted.

        Entries of a last micro-batch are in the order of the final writes, all others by allow, highest first.
        """
        last = used.last_micro_batches(grid)
        mini_batch = used.mini_batch(grid)
        hazard = np.searchsorted(
            hazards.key, (used.engine * hazards.span + mini_batch + 1) * grid.chunks + used.chunk
        )
        final = used.micro_batch == last[mini_batch]
        copy = _copies(hazards, hazard[final], used.mini_batches)
        copy_engine, copy_mini_batch = np.divmod(hazards.turn[copy], hazards.span)
        turn = np.concatenate(
            [
                used.engine * used.micro_batches + used.micro_batch,
                copy_engine * used.micro_batches + last[copy_mini_batch - 1],
            ]
        )
        hazard = np.concatenate([hazard, copy])
        final = np.concatenate([final, np.ones(len(copy), dtype=bool)])
        allow, chunk = hazards.allow[hazard], hazards.key[hazard] % grid.chunks
        rank = np.where(final, hazards.write[hazard], MAX_ALLOW - allow)

        empty = _absent(turn, grid.engines * used.micro_batches)
        engine, micro_batch = np.divmod(empty, used.micro_batches)
        waits = hazards.writes[engine * hazards.span + micro_batch // grid.micro_batches]
        zeros = np.zeros_like(empty)
        kind = np.repeat(
            [EntryKind.WORDS, EntryKind.COPY, EntryKind.EMPTY], [len(used.chunk), len(copy), len(empty)]
        )
        turn, allow = np.concatenate([turn, empty]), np.concatenate([allow, waits])
        rank, chunk = np.concatenate([rank, zeros]), np.concatenate([chunk, zeros])

        order = np.argsort((turn * (MAX_ALLOW + 1) + rank) * grid.chunks + chunk)
        turn = turn[order]
        ends = np.append(turn[1:] != turn[:-1], True)
        encoded = encode_entries(chunk[order], allow[order], kind[order], ends)
        return cls(turn // used.micro_batches, encoded, order[kind[order] == EntryKind.WORDS])


def _copies(hazards: _Hazards, final: Int64, mini_batches: int) -> Int64:
    """Return indices of the block's touched chunks that are not among ``final``, used by a last micro-batch."""
    number = hazards.turn % hazards.span
    unused = (number > 0) & (number <= mini_batches)
    unused[final] = False
    return np.flatnonzero(unused)


def _absent(values: Int64, end: int) -> Int64:
    """Return the numbers 0…end − 1 that are not among ``values``."""
    return np.flatnonzero(np.bincount(values, minlength=end) == 0)


def _engine_lists(entries: _Entries, used: _Used, grid: _Grid) -> tuple[EngineLists, ...]:
    words = _words(entries.use, used, grid)
    entry_ends = np.searchsorted(entries.engine, np.arange(grid.engines + 1))
    word_ends = grid.precision * np.searchsorted(used.engine, np.arange(grid.engines + 1))
    return tuple(
        EngineLists(
            entries.encoded[entry_ends[engine] : entry_ends[engine + 1]],
            words[word_ends[engine] : word_ends[engine + 1]],
        )
        for engine in range(grid.engines)
    )


def _words(order: Int64, used: _Used, grid: _Grid) -> Bytes:
    """Return uint8[words, bytes of a word] of the used chunks in this order."""
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    size = grid.lanes * MICRO_BATCH // 8
    words = np.zeros((len(order) * grid.precision, size), dtype=np.uint8)
    flat = words.reshape(-1)
    place = position[used.nonzero_use] * (grid.precision * size) + used.nonzero_bit // 8
    within = (used.nonzero_bit % 8).astype(np.uint8)
    for plane in range(grid.precision):
        bits = (used.nonzero_code >> (grid.precision - 1 - plane) & 1) << within
        np.bitwise_or.at(flat, place + plane * size, bits)
    return words


def _sizes(used: _Used, grid: _Grid) -> tuple[Int64, Int64, Int64, Int64]:
    """Return words, entries and items, [engine, micro-batch], and final writes, [engine, mini-batch]."""
    shape = (grid.engines, used.micro_batches)
    turn = used.engine * used.micro_batches + used.micro_batch
    entries = np.bincount(turn, minlength=shape[0] * shape[1]).reshape(shape)
    touched = _Touched.of(used, grid)
    engine = touched.place // grid.chunks
    writes = np.bincount(
        engine * used.mini_batches + touched.mini_batch, minlength=grid.engines * used.mini_batches
    ).reshape(grid.engines, used.mini_batches)
    words = entries * grid.precision
    last = used.last_micro_batches(grid)
    others = np.zeros(shape, dtype=np.int64)  # COPY and EMPTY
    others[:, last] = writes - entries[:, last]
    others[entries + others == 0] = 1
    return words, entries + others, words + others, writes
