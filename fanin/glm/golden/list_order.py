"""Order of the entries in a sparse node's lists (docs/systems/sparse.md, "Model memories and hazards").

Steps, for one worker and block of mini-batches:

1. ``Used``: chunks with non-zeros of each micro-batch.
2. ``Hazards``: chunks that each mini-batch changes, the place of their final writes, and their ``allow``.
3. ``OrderedEntries``: entries of each micro-batch, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.glm.facts import MICRO_BATCH, EntryKind, TrainShape
from fanin.glm.golden.list_entries import MAX_ALLOW, MAX_CHUNKS, encode_entries

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Grid:
    """Numbers of a run on one worker that every step of packing uses."""

    columns: range  # that the worker holds
    engines: int
    chunks: int  # of an engine
    lanes: int
    engine_columns: int
    micro_batches: int  # of a full mini-batch
    precision: int
    decays: bool  # each mini-batch changes all chunks

    @classmethod
    def of(cls, shape: TrainShape, worker: int) -> Grid:
        """Return a worker's numbers. Raises ValueError for shapes without lists."""
        if shape.data_parallel:
            raise ValueError("sparse samples need model-parallel nodes: the shape is data-parallel")
        if shape.chunks > MAX_CHUNKS:
            raise ValueError(f"an engine's list can name {MAX_CHUNKS:,} chunks, not {shape.chunks:,}")
        start = worker * shape.columns_per_worker
        columns = range(start, min(start + shape.columns_per_worker, shape.columns))
        node = shape.node
        sizes = (shape.columns_per_engine, shape.micro_batches, shape.precision)
        return cls(columns, node.engines, shape.chunks, node.lanes, *sizes, decays=node.l2)


class Used(NamedTuple):
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
    def of(cls, rows: sparse.csr_matrix, grid: Grid) -> Used:
        """Return the chunks that the non-zeros of whole mini-batches use on the worker's engines."""
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

    def mini_batch(self, grid: Grid) -> Int64:
        """Return the mini-batch of each use, counted from the block's first."""
        return self.micro_batch // grid.micro_batches

    def first_micro_batches(self, grid: Grid) -> Int64:
        """Return the first micro-batch of each mini-batch of the block."""
        return np.arange(self.mini_batches) * grid.micro_batches

    def last_micro_batches(self, grid: Grid) -> Int64:
        """Return the last micro-batch of each mini-batch of the block."""
        ends = self.first_micro_batches(grid) + grid.micro_batches
        return np.minimum(ends, self.micro_batches) - 1


class Changed(NamedTuple):
    """Chunks that mini-batches change; each once for each mini-batch, in order of mini-batch and place."""

    mini_batch: Int64  # of the block
    place: Int64  # engine · C + chunk
    first: Int64  # first micro-batch of the mini-batch that has an entry of the chunk
    late: Bool  # the last micro-batch has the final write, else the first one

    @classmethod
    def none(cls) -> Changed:
        """Return the chunks of no mini-batch."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, empty.astype(bool))

    @classmethod
    def of(cls, used: Used, grid: Grid) -> Changed:
        """Return the used chunks or, where weights decay, all chunks of each mini-batch."""
        places = grid.engines * grid.chunks
        key = used.mini_batch(grid) * places + used.engine * grid.chunks + used.chunk
        touched, first_use = np.unique(key, return_index=True)  # uses are in order of micro-batches
        if not grid.decays:
            first = used.micro_batch[first_use] % grid.micro_batches
            return cls(*np.divmod(touched, places), first, np.ones(len(touched), dtype=bool))
        changed = np.arange(used.mini_batches * places)
        late = np.repeat(used.first_micro_batches(grid) == used.last_micro_batches(grid), places)
        late[touched] = True
        return cls(*np.divmod(changed, places), np.zeros_like(changed), late)

    def only(self, mini_batch: int) -> Changed:
        """Return the chunks of one mini-batch."""
        return Changed(*(values[self.mini_batch == mini_batch] for values in self))


class Hazards(NamedTuple):
    """Changed chunks of a block, its predecessor (mini-batch 0) and its successor; sorted by ``key``.

    Mini-batches of the block have the numbers 1…m. A *turn* is engine · span + mini-batch; span exceeds the
    number of mini-batches, so that turns of different engines are no neighbours.
    """

    key: Int64  # turn · C + chunk
    turn: Int64
    late: Bool
    write: Int64  # place of the chunk's final write among those of the turn; early ones have that of the last
    allow: Int64
    writes: Int64  # for each turn, its number of final writes
    span: int

    @classmethod
    def of(cls, before: Changed, block: Changed, after: Changed, mini_batches: int, grid: Grid) -> Hazards:
        """Return the hazards of so many mini-batches. Raises ValueError for too many final writes."""
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
        late = np.concatenate([before.late, block.late, after.late])[order]
        turn, chunk = np.divmod(key, grid.chunks)

        again, index = _find(key, key + grid.chunks)  # the same chunk in the next turn
        needed = np.where(again, first[index], grid.micro_batches)
        rank = (turn * 2 + late) * (grid.micro_batches + 1) + needed
        write_order = np.argsort(rank * grid.chunks + chunk)
        writes = np.bincount(turn, minlength=grid.engines * span)
        if writes.max() > MAX_ALLOW:
            raise ValueError(f"an engine's mini-batch has {writes.max():,} chunks, at most {MAX_ALLOW:,} fit")
        write = np.empty_like(key)
        write[write_order] = np.arange(len(key)) - (np.cumsum(writes) - writes)[turn]
        early = np.bincount(turn[~late], minlength=grid.engines * span)
        write = np.where(late, write, early[turn] - 1)

        repeated, index = _find(key, key - grid.chunks)  # the same chunk in the previous turn
        previous = writes[turn - 1]
        allow = np.where(repeated, previous - 1 - write[index], previous)
        return cls(key, turn, late, write, allow, writes, span)

    def absent(self, present: Int64, chosen: Bool) -> Int64:
        """Return the indices of the block's chunks that are ``chosen`` and not among ``present``."""
        number = self.turn % self.span
        absent = (number > 0) & (number < self.span - 2) & chosen
        absent[present] = False
        return np.flatnonzero(absent)

    def of_mini_batches(self, values: Bool) -> Bool:
        """Return for each chunk the value of its mini-batch of the block; False outside the block."""
        return np.concatenate([[False], values, [False, False]])[self.turn % self.span]

    def micro_batch(self, indices: Int64, chosen: Int64, micro_batches: int) -> Int64:
        """Return engine · ``micro_batches`` + ``chosen`` micro-batch of the mini-batch, of some chunks."""
        engine, number = np.divmod(self.turn[indices], self.span)
        return engine * micro_batches + chosen[number - 1]


def _find(keys: Int64, wanted: Int64) -> tuple[Bool, Int64]:
    """Return which wanted values are among sorted ``keys``, and their indices; others have any valid index."""
    if not len(keys):
        return np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int64)
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return keys[index] == wanted, index


class OrderedEntries(NamedTuple):
    """Entries of a block's lists in order of engine and micro-batch."""

    engine: Int64
    encoded: npt.NDArray[np.uint32]
    use: Int64  # for each WORDS entry, index of its chunk in ``Used``

    @classmethod
    def of(cls, used: Used, hazards: Hazards, grid: Grid) -> OrderedEntries:
        """Return entries of all kinds, sorted.

        Entries of a last micro-batch are in the order of the final writes, all others by allow, highest first.
        """
        hazard, turn, kind, final = _named_chunks(used, hazards, grid)
        allow, chunk = hazards.allow[hazard], hazards.key[hazard] % grid.chunks
        rank = np.where(final, hazards.write[hazard], MAX_ALLOW - allow)

        empty = _absent(turn, grid.engines * used.micro_batches)
        engine, micro_batch = np.divmod(empty, used.micro_batches)
        waits = hazards.writes[engine * hazards.span + micro_batch // grid.micro_batches]
        zeros = np.zeros_like(empty)
        kind = np.concatenate([kind, np.full_like(empty, EntryKind.EMPTY)])
        turn, allow = np.concatenate([turn, empty]), np.concatenate([allow, waits])
        rank, chunk = np.concatenate([rank, zeros]), np.concatenate([chunk, zeros])

        order = np.argsort((turn * (MAX_ALLOW + 1) + rank) * grid.chunks + chunk)
        turn = turn[order]
        ends = np.append(turn[1:] != turn[:-1], True)
        encoded = encode_entries(chunk[order], allow[order], kind[order], ends)
        return cls(turn // used.micro_batches, encoded, order[kind[order] == EntryKind.WORDS])


def _named_chunks(used: Used, hazards: Hazards, grid: Grid) -> tuple[Int64, Int64, Int64, Bool]:
    """Return the chunks of all entries but EMPTY, those of ``used`` first.

    Arrays of the result: index of the chunk among ``hazards``, engine · micro-batches + micro-batch, kind, and
    whether the entry is in the last micro-batch of its mini-batch.
    """
    start, last = used.first_micro_batches(grid), used.last_micro_batches(grid)
    mini_batch = used.mini_batch(grid)
    hazard = np.searchsorted(
        hazards.key, (used.engine * hazards.span + mini_batch + 1) * grid.chunks + used.chunk
    )
    final = used.micro_batch == last[mini_batch]
    copy = hazards.absent(hazard[final], hazards.late)
    decay = np.zeros(0, dtype=np.int64)
    if grid.decays:
        several = hazards.of_mini_batches(start < last)
        decay = hazards.absent(hazard[used.micro_batch == start[mini_batch]], several)
    turn = [
        used.engine * used.micro_batches + used.micro_batch,
        hazards.micro_batch(copy, last, used.micro_batches),
        hazards.micro_batch(decay, start, used.micro_batches),
    ]
    kind = [
        np.full_like(hazard, EntryKind.WORDS),
        np.full_like(copy, EntryKind.COPY),
        np.where(hazards.late[decay], EntryKind.COPY, EntryKind.FINAL),
    ]
    final = np.concatenate([final, np.repeat([True, False], [len(copy), len(decay)])])
    return np.concatenate([hazard, copy, decay]), np.concatenate(turn), np.concatenate(kind), final


def _absent(values: Int64, end: int) -> Int64:
    """Return the numbers 0…end − 1 that are not among ``values``."""
    return np.flatnonzero(np.bincount(values, minlength=end) == 0)
