"""Layout of a data set's samples on GLM nodes, dense or sparse, and the choice between both.

Dense samples have a word per chunk, plane and micro-batch. Sparse ones leave out chunks that are all zero, and
may have their columns in another order (docs/systems/sparse.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.base.errors import DoesNotFit
from fanin.fixed import Decay
from fanin.glm.facts import ColumnRule, GlmConfig, SparseChoice, TrainShape
from fanin.glm.golden.csr import column_counts
from fanin.glm.golden.lists import ListTotals, totals_of_all
from fanin.glm.golden.order import ColumnOrder, data_order, frequency_order
from fanin.glm.golden.quantise import Samples
from fanin.wire.aggregation import MAX_WORKERS

Scalar = TypeVar("Scalar", bound=np.generic)

MAX_SHARE = 0.5  # of the dense words: with fewer items, ``auto`` takes sparse samples


@dataclass(frozen=True, eq=False)
class SampleLayout:
    """Layout of the training samples, and its sizes.

    - ``shape``: data set on the nodes; of sparse samples in layout space.
    - ``columns``: columns of the data, including the bias.
    - ``reason``: reason of the choice, as in "sparse, …"; empty if there was nothing to choose.
    - ``order``: places of the data's columns; None: dense samples.
    - ``totals``: sizes of the sparse lists, of engines numbered worker · E + engine; None: not counted.
    """

    shape: TrainShape
    columns: int
    reason: str = ""
    order: ColumnOrder | None = None
    totals: ListTotals | None = None

    @property
    def is_sparse(self) -> bool:
        """True if the nodes take sparse samples."""
        return self.order is not None

    @property
    def dense_words(self) -> int:
        """Words of an engine in an epoch of dense samples."""
        return self.shape.micro_batches_per_epoch * self.shape.words_per_micro_batch

    def cycles_ideal(self, workers: tuple[int, ...] = ()) -> int:
        """Return the cycles of an epoch without any wait: the items of the busiest engine.

        ``workers``: workers whose engines count; empty: all.
        """
        if not self.is_sparse:
            return self.dense_words
        assert self.totals is not None
        by_worker = self.totals.items.reshape(self.shape.workers, self.shape.node.engines)
        return int(by_worker[list(workers or range(self.shape.workers))].max())

    def wordless_items(self, worker: int) -> int:
        """Return the items without a word that a worker's engines take in an epoch."""
        assert self.totals is not None
        by_engine = (self.totals.items - self.totals.words).reshape(self.shape.workers, self.shape.node.engines)
        return int(by_engine[worker].sum())

    def to_data(self, model: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return values per column of the nodes in the data's order."""
        return self.order.to_data(model) if self.order else model

    def to_nodes(self, model: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return values per column of the data in the nodes' order."""
        return self.order.to_layout(model) if self.order else model

    def decay_on_nodes(self, decay: Decay) -> Decay:
        """Return a decay that spares a column of the data, with that column's place on the nodes."""
        if self.order is None or decay.spared is None:
            return decay
        return decay._replace(spared=int(self.order.places[decay.spared]))

    def text(self) -> str:
        """Return the choice, its reason and its words in one line; empty if there was nothing to choose."""
        if not self.reason:
            return ""
        choice = f"{'sparse' if self.is_sparse else 'dense'}, {self.reason}"
        dense = f"{self.shape.words_per_micro_batch:,}"
        if self.totals is None:
            return f"{choice}: {dense} words a micro-batch and engine"
        words, items = (
            sizes / self.shape.micro_batches_per_epoch for sizes in (self.totals.words, self.totals.items)
        )
        mean = f"{words.mean():,.1f} words in {items.mean():,.1f} cycles a micro-batch and engine"
        return f"{choice}: {mean}, {items.max():,.1f} on the busiest, {dense} if dense"

    def as_json(self) -> dict[str, Any]:
        """Return ``layout`` of run.json: the choice, and words, entries and items per worker and engine."""
        sizes = {}
        if self.totals is not None:
            grid = self.shape.workers, self.shape.node.engines
            names = ("words", "entries", "items")
            sizes = {name: getattr(self.totals, name).reshape(grid).tolist() for name in names}
        return {
            "sparse": self.is_sparse,
            "reason": self.reason,
            "columns": self.shape.columns,
            "dense_words": self.dense_words,
            **sizes,
        }


def choose_layout(
    features: Samples,
    *,
    node: GlmConfig,
    workers: int,
    batch: int,
    precision: int,
    vanilla: bool = False,
    choice: SparseChoice,
    rule: ColumnRule,
    is_csr: bool,
    obstacle: str = "",
    required: str = "",
) -> tuple[SampleLayout, Samples]:
    """Return the layout of the samples, and the samples in it: CSR codes if sparse.

    - ``features``: codes of the training samples, dense or CSR, including the bias.
    - ``is_csr``: True if the data came as CSR, which ``choice`` auto considers.
    - ``obstacle``: reason against sparse nodes, for ``choice`` auto; empty: only those of ``node``.
    - ``required``: reason for sparse nodes, whatever ``choice`` and ``is_csr``; empty: none.

    Raises DoesNotFit if the samples do not fit, InputError for other numbers outside the nodes' limits.
    """
    samples, columns = features.shape
    run = {"workers": workers, "samples": samples, "batch": batch, "precision": precision}
    if not obstacle and node.sparse_obstacle:
        obstacle = f"sparse nodes cannot have {node.sparse_obstacle}"
    if required:
        choice = SparseChoice.ON

    def dense(reason: str, totals: ListTotals | None = None) -> tuple[SampleLayout, Samples]:
        shape = TrainShape(node=replace(node, sparse=False), columns=columns, vanilla=vanilla, **run)
        return SampleLayout(shape, columns, reason, totals=totals), features

    if choice is SparseChoice.OFF:
        return dense("by --sparse off")
    if choice is SparseChoice.AUTO and not is_csr:
        return dense("")
    if choice is SparseChoice.AUTO and obstacle:
        return dense(f"since {obstacle}")
    codes = sparse.csr_matrix(features)
    sizes = {"workers": workers, "engines": node.engines, "lanes": node.lanes}
    order = order_of(codes, rule, sizes)
    TrainShape(node=replace(node, sparse=True), columns=columns, **run)  # names the data's columns in errors
    shape = TrainShape(node=replace(node, sparse=True), columns=order.padded, **run)
    placed = order.permute(codes)
    totals = totals_of_all(placed, shape)
    reason = required or "by --sparse on"
    if choice is SparseChoice.AUTO:
        reason = "since its cycles are fewer than half of the dense ones"
        items, engines = int(totals.items.sum()), len(totals.items)
        if shape.words_per_micro_batch > node.sample_fifo:
            reason = "since dense samples do not fit the nodes"
        elif items >= MAX_SHARE * engines * shape.micro_batches_per_epoch * shape.words_per_micro_batch:
            return dense("since sparse cycles are not fewer than half of the dense ones", totals)
    _check_sample_fifo(totals, shape, codes, rule)
    return SampleLayout(shape, columns, reason, order, totals), placed


def order_of(codes: sparse.csr_matrix, rule: ColumnRule, sizes: dict[str, int]) -> ColumnOrder:
    """Return the order of columns by a rule. ``sizes``: ``workers``, ``engines`` and ``lanes``."""
    if rule is ColumnRule.NONE:
        return data_order(codes.shape[1], **sizes)
    return frequency_order(column_counts(codes), **sizes)


def _check_sample_fifo(
    totals: ListTotals, shape: TrainShape, codes: sparse.csr_matrix, rule: ColumnRule
) -> None:
    """Raise DoesNotFit, with a number of workers that would fit, if a micro-batch exceeds a sample FIFO."""
    most, capacity = int(totals.most_items.max()), shape.node.sample_fifo
    if most <= capacity:
        return
    worker = int(totals.most_items.argmax()) // shape.node.engines
    fits = _fitting_workers(shape, codes, rule)
    remedy = f"--workers {fits} fits, or use" if fits else "use"
    raise DoesNotFit(
        f"a micro-batch has {most:,} items on an engine of worker {worker}, the sample FIFO holds "
        f"{capacity:,}: {remedy} --engines, --preset, or a smaller --precision"
    )


def _fitting_workers(shape: TrainShape, codes: sparse.csr_matrix, rule: ColumnRule) -> int:
    """Return a number of workers at one switch whose sample FIFOs hold each micro-batch; 0 if none is found."""
    workers = 2 * shape.workers
    while workers <= MAX_WORKERS:
        order = order_of(
            codes, rule, {"workers": workers, "engines": shape.node.engines, "lanes": shape.node.lanes}
        )
        more = replace(shape, workers=workers, columns=order.padded)
        if totals_of_all(order.permute(codes), more).most_items.max() <= shape.node.sample_fifo:
            return workers
        workers *= 2
    return 0
