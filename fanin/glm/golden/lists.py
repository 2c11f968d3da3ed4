"""Lists and words of a sparse node: its two regions of each engine in memory (docs/systems/sparse.md).

The list names the chunks of each micro-batch in the order in which the engine takes them; the words have the
bit planes of these chunks only. Samples are a CSR matrix in layout space (``fanin.glm.golden.order``), or a
stream of CSR blocks. Packing takes a block of mini-batches at a time and looks one mini-batch ahead. Time is
proportional to the non-zeros and to the micro-batches times the engines; memory to those of a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.glm.facts import MICRO_BATCH, TrainShape
from fanin.glm.golden.list_order import Changed, Grid, Hazards, OrderedEntries, Used
from fanin.glm.golden.quantise import canonical

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

#: CSR codes of all samples, or blocks of them in order. All blocks but the last have whole mini-batches.
RowBlocks: TypeAlias = sparse.csr_matrix | Iterable[sparse.csr_matrix]

NONZEROS_AT_ONCE = 1 << 18  # bounds the memory of a block: words have up to ``lanes`` · s bytes a non-zero
ROWS_AT_ONCE = 1 << 16


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

    An item is a cycle of the engine: a word, or an entry without words.
    """

    most_items: Int64  #: [engine]: most items of a micro-batch; they must fit the sample FIFO
    mini_batch_words: Int64  #: [engine, mini-batch]
    mini_batch_entries: Int64  #: [engine, mini-batch]
    mini_batch_items: Int64  #: [engine, mini-batch]
    final_writes: Int64  #: [engine, mini-batch]: chunks that the mini-batch changes

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
    grid = Grid.of(shape, worker)
    before = Changed.none()
    blocks = _row_blocks(features, shape)
    first, rows = 0, next(blocks, None)
    while rows is not None:
        successor = next(blocks, None)
        used = Used.of(rows, grid)
        changed = Changed.of(used, grid)
        after = Changed.none()
        if successor is not None:
            after = Changed.of(Used.of(successor[: shape.batch], grid), grid)
        hazards = Hazards.of(before, changed, after, used.mini_batches, grid)
        entries = OrderedEntries.of(used, hazards, grid)
        covered = range(first, first + used.mini_batches)
        yield ListBlock(covered, _engine_lists(entries, used, grid))
        before = changed.only(used.mini_batches - 1)
        first, rows = covered.stop, successor


def totals(features: RowBlocks, shape: TrainShape, worker: int) -> ListTotals:
    """Count a worker's words and entries of an epoch without building them; errors as in ``pack_lists``."""
    return _totals(features, shape, Grid.of(shape, worker))


def totals_of_all(features: RowBlocks, shape: TrainShape) -> ListTotals:
    """Count the words and entries of all engines, numbered worker · E + engine, in one pass.

    ``features`` must be in layout space, where all engines have equally many columns. Errors: as in
    ``pack_lists``.
    """
    engines = shape.workers * shape.node.engines
    if shape.columns != engines * shape.chunks * shape.node.lanes:
        raise ValueError(f"columns must fill all chunks of {engines} engines, not be {shape.columns:,}")
    grid = replace(Grid.of(shape, 0), columns=range(shape.columns), engines=engines)
    return _totals(features, shape, grid)


def _totals(features: RowBlocks, shape: TrainShape, grid: Grid) -> ListTotals:
    most = np.zeros(grid.engines, dtype=np.int64)
    sizes = np.zeros((4, grid.engines, shape.mini_batches), dtype=np.int32)
    first = 0
    for rows in _row_blocks(features, shape):
        used = Used.of(rows, grid)
        words, entries, items, writes = _sizes(used, grid)
        most = np.maximum(most, items.max(axis=1))
        starts = np.arange(0, used.micro_batches, grid.micro_batches)
        part = sizes[:, :, first : first + used.mini_batches]
        part[:3] = np.add.reduceat(np.stack([words, entries, items]), starts, axis=-1)
        part[3] = writes
        first += used.mini_batches
    return ListTotals(most, *sizes)


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
        decaying = rows.shape[0] * shape.columns // (shape.node.lanes * shape.batch) if shape.node.l2 else 0
        most = min(ROWS_AT_ONCE, NONZEROS_AT_ONCE * rows.shape[0] // max(rows.nnz + decaying, 1))
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


def _engine_lists(entries: OrderedEntries, used: Used, grid: Grid) -> tuple[EngineLists, ...]:
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


def _words(order: Int64, used: Used, grid: Grid) -> Bytes:
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


def _sizes(used: Used, grid: Grid) -> tuple[Int64, Int64, Int64, Int64]:
    """Return words, entries and items, [engine, micro-batch], and final writes, [engine, mini-batch]."""
    shape = (grid.engines, used.micro_batches)
    turn = used.engine * used.micro_batches + used.micro_batch
    entries = np.bincount(turn, minlength=shape[0] * shape[1]).reshape(shape)
    changed = Changed.of(used, grid)
    place = changed.place // grid.chunks * used.mini_batches + changed.mini_batch
    writes, late = (
        np.bincount(part, minlength=grid.engines * used.mini_batches).reshape(grid.engines, used.mini_batches)
        for part in (place, place[changed.late])
    )
    words = entries * grid.precision
    first, last = used.first_micro_batches(grid), used.last_micro_batches(grid)
    others = np.zeros(shape, dtype=np.int64)  # entries without words
    if grid.decays:
        others[:, first] = grid.chunks - entries[:, first]
    others[:, last] = late - entries[:, last]
    others[entries + others == 0] = 1
    return words, entries + others, words + others, writes
