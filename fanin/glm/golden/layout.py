"""Where samples, labels and weights lie in a worker's memories (docs/reference/numbers.md, "In memory").

Samples are words ``[engine][micro-batch][chunk][plane]`` of lanes · 8 bits, planes most significant first;
bit lanes·b + k of a word is feature k of sample b, the lowest bit first in byte order. Two AXI4 ports read
an engine's words; port p has a region of its own that holds half p of every word. Labels are one int32 per
sample, 8 per micro-batch. Weights are ``[engine][chunk][lane]``.

In data-parallel mode worker w sees samples [w·B/W, (w+1)·B/W) of every mini-batch, which begin a micro-batch.
Every worker has as many micro-batches as worker 0; samples that it lacks, as those that a short micro-batch
lacks, are zero: no gradient comes from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fanin.glm.facts import MICRO_BATCH, TrainShape

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]


def engine_columns(shape: TrainShape, worker: int, engine: int) -> slice:
    """The columns of the data set that an engine holds; empty where there is only padding."""
    first = 0 if shape.data_parallel else worker * shape.columns_per_worker
    end = min(first + shape.columns_per_worker, shape.columns)
    start = first + engine * shape.columns_per_engine
    return slice(min(start, end), min(start + shape.columns_per_engine, end))


class Place(NamedTuple):
    """Where a worker holds a weight."""

    engine: int
    chunk: int
    lane: int


def place_of(column: int, shape: TrainShape, worker: int) -> Place | None:
    """Where that worker holds the weight of a column; None where another one does."""
    for engine in range(shape.node.engines):
        columns = engine_columns(shape, worker, engine)
        if columns.start <= column < columns.stop:
            return Place(engine, *divmod(column - columns.start, shape.node.lanes))
    return None


def worker_samples(shape: TrainShape, worker: int) -> npt.NDArray[np.int64]:
    """The sample in each place of a worker's micro-batches, −1 where there is none."""
    place = np.arange(shape.micro_batches_per_epoch * MICRO_BATCH)
    mini_batch, within = np.divmod(place, shape.micro_batches * MICRO_BATCH)
    first = worker * shape.batch_per_worker if shape.data_parallel else 0
    sample = mini_batch * shape.batch + first + within
    return np.where((within < shape.batch_per_worker) & (sample < shape.samples), sample, -1)


def _place(source: npt.NDArray, samples: npt.NDArray[np.int64], out: npt.NDArray) -> None:
    present = samples >= 0
    out[present, : source.shape[1]] = source[samples[present]]


def pack_samples(features: Bytes, shape: TrainShape, worker: int) -> Bytes:
    """A worker's words, uint8[engine, micro-batch, chunk, plane, lanes]; a word is its last axis' bytes."""
    samples = worker_samples(shape, worker)
    node, batches, chunks = shape.node, shape.micro_batches_per_epoch, shape.chunks
    words = np.empty((node.engines, batches, chunks, shape.precision, node.word_bits // 8), dtype=np.uint8)
    for engine in range(node.engines):
        block = np.zeros((len(samples), chunks * node.lanes), dtype=np.uint8)
        _place(features[:, engine_columns(shape, worker, engine)], samples, block)
        by_chunk = block.reshape(batches, MICRO_BATCH, chunks, node.lanes).transpose(0, 2, 1, 3)
        codes = by_chunk.reshape(batches, chunks, node.word_bits)
        for plane in range(shape.precision):
            bits = codes >> (shape.precision - 1 - plane) & 1
            words[engine, :, :, plane] = np.packbits(bits, axis=-1, bitorder="little")
    return words


def split_ports(words: Bytes) -> list[Bytes]:
    """The contents of the 2·E sample memories: region 2·e + p has half p of every word of engine e."""
    half = words.shape[-1] // 2
    return [
        np.ascontiguousarray(engine[..., p * half : (p + 1) * half]).reshape(-1)
        for engine in words
        for p in range(2)
    ]


def pack_labels(labels: Int32, shape: TrainShape, worker: int) -> Int32:
    """A worker's labels, int32[micro-batch, 8], little-endian; 0 where there is no sample."""
    samples = worker_samples(shape, worker)
    out = np.zeros((len(samples), 1), dtype="<i4")
    _place(labels[:, np.newaxis], samples, out)
    return out.reshape(-1, MICRO_BATCH)


def join_model(parts: Sequence[Int32], shape: TrainShape, workers: Sequence[int] | None = None) -> Int32:
    """The model in column order from the parts of ``workers``, all unless given: 0 in others' columns.

    In data-parallel mode it is the first part.
    """
    model = np.zeros(shape.columns, dtype=np.int32)
    places = workers or range(len(parts))
    for worker, part in list(zip(places, parts, strict=True))[: 1 if shape.data_parallel else None]:
        for engine, weights in enumerate(part):
            columns = engine_columns(shape, worker, engine)
            model[columns] = weights.reshape(-1)[: columns.stop - columns.start]
    return model


def split_model(model: Int32, shape: TrainShape, worker: int) -> Int32:
    """Return the weights that a worker holds, [engine, chunk, lane], of a model in column order.

    Places without a column are 0, as ``join_model`` leaves them out.
    """
    node = shape.node
    part = np.zeros((node.engines, shape.chunks * node.lanes), dtype=np.int32)
    for engine in range(node.engines):
        columns = engine_columns(shape, worker, engine)
        part[engine, : columns.stop - columns.start] = model[columns]
    return part.reshape(node.engines, shape.chunks, node.lanes)


def columns_of(shape: TrainShape, workers: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which columns of the model ``workers`` hold: in data-parallel mode all."""
    held = np.full(shape.columns, shape.data_parallel)
    for worker in workers:
        for engine in range(shape.node.engines):
            held[engine_columns(shape, worker, engine)] = True
    return held
