"""Layout of samples, labels and weights in a worker's memories (docs/reference/numbers.md, "In memory").

Samples are words ``[engine][micro-batch][chunk][plane]`` of lanes · 8 bits, most significant plane first. Bit
lanes·b + k of a word is feature k of sample b; the lowest bit is first in byte order. Each engine reads its
words through two AXI4 ports; port p has its own region with half p of every word. Labels are one int32 per
sample, 8 per micro-batch. Weights are ``[engine][chunk][lane]``.

In data-parallel mode worker w sees samples [w·B/W, (w+1)·B/W) of every mini-batch, starting at a micro-batch.
Every worker has the same number of micro-batches as worker 0. Missing samples, in a short micro-batch or on a
worker with fewer samples, are zero: they add nothing to the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fanin.glm.facts import MICRO_BATCH, TrainShape
from fanin.glm.golden.quantise import Samples

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]


def engine_columns(shape: TrainShape, worker: int, engine: int) -> slice:
    """Return the columns of the data set that an engine holds; empty if the engine has only padding."""
    first = 0 if shape.data_parallel else worker * shape.columns_per_worker
    end = min(first + shape.columns_per_worker, shape.columns)
    start = first + engine * shape.columns_per_engine
    return slice(min(start, end), min(start + shape.columns_per_engine, end))


class Place(NamedTuple):
    """Position of a weight in a worker's model memories."""

    engine: int
    chunk: int
    lane: int


def place_of(column: int, shape: TrainShape, worker: int) -> Place | None:
    """Return the position of a column's weight on ``worker``; None if another worker holds it."""
    for engine in range(shape.node.engines):
        columns = engine_columns(shape, worker, engine)
        if columns.start <= column < columns.stop:
            return Place(engine, *divmod(column - columns.start, shape.node.lanes))
    return None


def worker_samples(shape: TrainShape, worker: int) -> npt.NDArray[np.int64]:
    """Return the sample number for each position in a worker's micro-batches; −1 for padding."""
    position = np.arange(shape.micro_batches_per_epoch * MICRO_BATCH)
    mini_batch, offset = np.divmod(position, shape.micro_batches * MICRO_BATCH)
    first = worker * shape.batch_per_worker if shape.data_parallel else 0
    sample = mini_batch * shape.batch + first + offset
    return np.where((offset < shape.batch_per_worker) & (sample < shape.samples), sample, -1)


def _copy_samples(source: npt.NDArray, samples: npt.NDArray[np.int64], target: npt.NDArray) -> None:
    present = samples >= 0
    target[present, : source.shape[1]] = source[samples[present]]


def pack_samples(features: Samples, shape: TrainShape, worker: int) -> Bytes:
    """Return a worker's words, uint8[engine, micro-batch, chunk, plane, byte of the word].

    ``features``: codes, dense or CSR. CSR codes of one engine at a time are made dense.
    """
    samples = worker_samples(shape, worker)
    node, batches, chunks = shape.node, shape.micro_batches_per_epoch, shape.chunks
    words = np.empty((node.engines, batches, chunks, shape.precision, node.word_bits // 8), dtype=np.uint8)
    for engine in range(node.engines):
        block = np.zeros((len(samples), chunks * node.lanes), dtype=np.uint8)
        codes_of_engine = features[:, engine_columns(shape, worker, engine)]
        if not isinstance(codes_of_engine, np.ndarray):
            codes_of_engine = codes_of_engine.toarray()
        _copy_samples(codes_of_engine, samples, block)
        by_chunk = block.reshape(batches, MICRO_BATCH, chunks, node.lanes).transpose(0, 2, 1, 3)
        codes = by_chunk.reshape(batches, chunks, node.word_bits)
        for plane in range(shape.precision):
            bits = codes >> (shape.precision - 1 - plane) & 1
            words[engine, :, :, plane] = np.packbits(bits, axis=-1, bitorder="little")
    return words


def split_ports(words: Bytes) -> list[Bytes]:
    """Return the contents of the 2·E sample memories; memory 2·e + p has half p of every word of engine e."""
    half = words.shape[-1] // 2
    return [
        np.ascontiguousarray(engine[..., p * half : (p + 1) * half]).reshape(-1)
        for engine in words
        for p in range(2)
    ]


def pack_labels(labels: Int32, shape: TrainShape, worker: int) -> Int32:
    """Return a worker's labels, little-endian int32[micro-batch, 8]; 0 for padding."""
    samples = worker_samples(shape, worker)
    packed = np.zeros((len(samples), 1), dtype="<i4")
    _copy_samples(labels[:, np.newaxis], samples, packed)
    return packed.reshape(-1, MICRO_BATCH)


def join_model(parts: Sequence[Int32], shape: TrainShape, workers: Sequence[int] | None = None) -> Int32:
    """Return the model in column order from the ``parts`` that ``workers`` (default: all) hold.

    Columns of other workers are 0. In data-parallel mode every worker has the whole model; the first part is
    returned.
    """
    model = np.zeros(shape.columns, dtype=np.int32)
    numbers = workers or range(len(parts))
    for worker, part in list(zip(numbers, parts, strict=True))[: 1 if shape.data_parallel else None]:
        for engine, weights in enumerate(part):
            columns = engine_columns(shape, worker, engine)
            model[columns] = weights.reshape(-1)[: columns.stop - columns.start]
    return model


def split_model(model: Int32, shape: TrainShape, worker: int) -> Int32:
    """Return the weights, [engine, chunk, lane], that a worker holds of a model in column order.

    Padding is 0.
    """
    node = shape.node
    part = np.zeros((node.engines, shape.chunks * node.lanes), dtype=np.int32)
    for engine in range(node.engines):
        columns = engine_columns(shape, worker, engine)
        part[engine, : columns.stop - columns.start] = model[columns]
    return part.reshape(node.engines, shape.chunks, node.lanes)


def columns_of(shape: TrainShape, workers: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return a mask of the model's columns that ``workers`` hold; in data-parallel mode all."""
    mask = np.full(shape.columns, shape.data_parallel)
    for worker in workers:
        for engine in range(shape.node.engines):
            mask[engine_columns(shape, worker, engine)] = True
    return mask
