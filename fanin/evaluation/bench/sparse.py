"""Benchmark of sparse nodes: words and memory against dense ones, cycles in RTL, time and memory of packing.

The data sets are stand-ins with the shapes of the paper's (``fanin.sim.glm.data.synthetic``).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
from scipy import sparse

from fanin import fixed
from fanin.base.errors import CheckFailed
from fanin.base.tools import safe_path
from fanin.evaluation.bench.result import Result
from fanin.fixed import Loss
from fanin.glm.facts import ENTRY_BITS, PRESETS, ColumnRule, GlmConfig, TrainShape
from fanin.glm.golden.lists import ListTotals, pack_lists, totals_of_all
from fanin.glm.golden.sample_layout import order_of
from fanin.glm.golden.train import train
from fanin.sim.glm.cosim import Cosim
from fanin.sim.glm.data import TABLE_II, prepare, synthetic
from fanin.sim.glm.time import EpochTime

BATCH = 64
NODE = replace(PRESETS["u280"], sparse=True)
SMALL_NODE = replace(NODE, name="two engines", engines=2)
PRECISIONS = {"avazu": 1, "rcv1": 4}  # bits of a feature; avazu's are 0 or 1
CARDS, CARD_GB = 8, 8
COUNTED = 200_000  # samples, at most, in which words are counted
PACKED, BLOCKS = 1_024_000, 10  # samples, streamed in blocks of whole mini-batches
RTL_SAMPLES, SMALL_SAMPLES = 6_400, 50_000
MAX_SECONDS, MAX_GB = 60, 1
MAX_EPOCH_SECONDS = 600


class _AnyShape(TrainShape):
    """Shape of nodes with as many chunks as the data need, to count words."""

    def _check_model_memory(self) -> None:
        """Accept any number of chunks."""


@dataclass(frozen=True)
class Placed:
    """Samples of a set on nodes: CSR codes in layout space, labels, and what each worker's lists hold."""

    features: sparse.csr_matrix
    labels: np.ndarray
    shape: TrainShape

    @property
    def totals(self) -> ListTotals:
        """Sizes of the lists of all engines."""
        return totals_of_all(self.features, self.shape)


def measure() -> Iterator[Result]:
    """Yield the figures as they are measured, a quarter of an hour in all."""
    for name, rule in (("avazu", ColumnRule.FREQUENCY), *(("rcv1", rule) for rule in ColumnRule)):
        yield from _words(name, rule)
    yield from _decay("rcv1", 1, 1)
    yield from _decay("avazu", CARDS, NODE.engines)
    yield from _memory()
    yield from _packing()
    yield from _cards()
    yield from _small()


def place(
    name: str, samples: int, workers: int, node: GlmConfig, rule: ColumnRule = ColumnRule.FREQUENCY
) -> Placed:
    """Return the first ``samples`` of a stand-in on nodes."""
    precision = PRECISIONS[name]
    raw = synthetic(name, TABLE_II[name], samples=min(samples, TABLE_II[name].samples))
    data = prepare(raw, precision=precision, bias=True, test=0)
    codes = sparse.csr_matrix(data.features)
    size = {"workers": workers, "engines": node.engines, "lanes": node.lanes}
    placing = order_of(codes, rule, size)
    shape = _AnyShape(
        node=node,
        workers=workers,
        samples=codes.shape[0],
        columns=placing.padded,
        batch=BATCH,
        precision=precision,
    )
    labels = fixed.labels(data.labels, Loss.LOGISTIC, node.frac)
    return Placed(placing.permute(codes), labels, shape)


def _words(name: str, rule: ColumnRule) -> Iterator[Result]:
    """Yield the share of a dense engine's words that one engine of one worker takes."""
    placed = place(name, COUNTED, 1, replace(NODE, engines=1), rule)
    found = placed.totals
    micro_batches, dense = placed.shape.micro_batches_per_epoch, placed.shape.words_per_micro_batch
    words, items = int(found.words[0]) / micro_batches, int(found.mini_batch_items.sum()) / micro_batches
    limit = 1.0 if name == "avazu" else None
    note = f"{words:,.1f} words, {items:,.1f} items a micro-batch; dense {dense:,}"
    yield Result(f"{name}, order {rule}: items against dense words", 100 * items / dense, "%", limit, note=note)


def _decay(name: str, workers: int, engines: int) -> Iterator[Result]:
    """Yield the cycles of an epoch with L2 against one without, by the time model."""
    placed = place(name, RTL_SAMPLES, workers, replace(NODE, engines=engines))
    decaying = replace(placed, shape=replace(placed.shape, node=replace(placed.shape.node, l2=True)))
    plain, cycles = (EpochTime(shape=each.shape, items=_busiest(each)).cycles for each in (placed, decaying))
    note = f"{cycles:,} cycles, {plain:,} without; {placed.shape.chunks:,} chunks an engine"
    yield Result(f"{name}, {workers} × {engines} engines: L2", cycles / plain, "×", note=note)


def _memory() -> Iterator[Result]:
    """Yield the memory of all of avazu on the busiest of eight cards, from the words of some samples."""
    placed = place("avazu", COUNTED, CARDS, NODE)
    shape, scale = placed.shape, TABLE_II["avazu"].samples / placed.shape.samples
    word_bytes = shape.node.word_bits // 8
    found = placed.totals
    sizes = (found.words * word_bytes + found.entries * (ENTRY_BITS // 8)).reshape(CARDS, -1).sum(axis=1)
    dense = shape.node.engines * shape.micro_batches_per_epoch * shape.words_per_micro_batch * word_bytes
    note = f"of {CARDS} cards with {CARD_GB} GB; dense {scale * dense / 1e9:,.0f} GB a card"
    yield Result(
        "avazu, 40 million samples: busiest card", scale * int(sizes.max()) / 1e9, "GB", CARD_GB, note=note
    )


def _packing() -> Iterator[Result]:
    """Yield time and memory of packing, in a process of its own."""
    with safe_path(), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        seconds, gigabytes = pool.submit(_pack, PACKED).result()
    yield Result(f"{PACKED:,} samples packed", seconds, "s", MAX_SECONDS)
    yield Result(f"{PACKED:,} samples packed: memory of the process", gigabytes, "GB", MAX_GB)


def _pack(samples: int) -> tuple[float, float]:
    """Return seconds, and the peak of the process's memory in GB, samples and their drawing included."""
    placed = place("avazu", samples // BLOCKS, 1, replace(NODE, engines=1))
    start = time.monotonic()
    for _ in pack_lists([placed.features] * BLOCKS, replace(placed.shape, samples=samples), 0):
        pass
    return time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _train(placed: Placed, cosim: Cosim, *, compare: bool = False) -> int:
    """Return the cycles of an epoch. Raises CheckFailed if its model should be compared and is not golden."""
    options: dict[str, Any] = {"loss": Loss.LOGISTIC, "rate": fixed.learning_rate(0.5 / BATCH), "epochs": 1}
    run = cosim.train(placed.shape, placed.features, placed.labels, **options, models=compare)
    if compare:
        (golden,) = train(placed.features, placed.labels, placed.shape, **options)
        if not np.array_equal(run.models[0], golden.model):
            raise CheckFailed("the model of sparse nodes differs from the golden model")
    return run.cycles[0]


def _busiest(placed: Placed) -> list[int]:
    """Return the items of the busiest engine in each mini-batch."""
    items: list[int] = placed.totals.mini_batch_items.max(axis=0).tolist()
    return items


def _cards() -> Iterator[Result]:
    """Yield an epoch of avazu-shaped samples on eight u280 nodes, beside the dense nodes' by the time model."""
    placed = place("avazu", RTL_SAMPLES, CARDS, NODE)
    cycles = _train(placed, Cosim(NODE, workers=CARDS, quiet=True))
    model = EpochTime(shape=placed.shape, items=_busiest(placed)).cycles
    dense = EpochTime(shape=replace(placed.shape, node=PRESETS["u280"])).cycles
    name = f"avazu, {RTL_SAMPLES:,} samples, 8 × 8 engines"
    yield Result(f"{name}: RTL", cycles, "cycles", note=f"time model {model:,}")
    yield Result(f"{name}: faster than dense", dense / cycles, "×", 10, at_least=True, note=f"dense {dense:,}")


def _small() -> Iterator[Result]:
    """Yield the wall-clock time of a whole epoch through the RTL of two small workers, and its comparison."""
    placed = place("avazu", SMALL_SAMPLES, 2, SMALL_NODE)
    cosim = Cosim(SMALL_NODE, workers=2, quiet=True)
    start = time.monotonic()
    cycles = _train(placed, cosim, compare=True)
    name = f"avazu, {SMALL_SAMPLES:,} samples, 2 × 2 engines: RTL"
    yield Result(name, time.monotonic() - start, "s", MAX_EPOCH_SECONDS, note=f"{cycles:,} cycles, bit-exact")
