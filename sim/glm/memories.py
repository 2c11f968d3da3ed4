"""Contents of a GLM node's memories in a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.glm.driver import NodeList
from fanin.glm.facts import TrainShape
from fanin.glm.golden.layout import pack_labels, pack_samples, split_ports
from fanin.glm.golden.lists import EngineLists, RowBlocks, pack_lists, totals

Int32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


def port_contents(
    shape: TrainShape, features: Bytes | RowBlocks, labels: Int32, worker: int
) -> Iterator[npt.NDArray]:
    """Yield the contents of a node's memory ports: samples, labels, then a sparse node's lists."""
    if not shape.node.sparse:
        assert isinstance(features, np.ndarray | sparse.csr_matrix), "dense nodes need all samples at once"
        yield from split_ports(pack_samples(features, shape, worker))
        yield pack_labels(labels, shape, worker)
        return
    blocks = [block.engines for block in pack_lists(features, shape, worker)]
    engines = [(np.concatenate(entries), np.concatenate(words)) for entries, words in _by_engine(blocks)]
    for _, words in engines:
        yield from split_ports(words[np.newaxis])
    yield pack_labels(labels, shape, worker)
    for entries, _ in engines:
        yield entries


def _by_engine(blocks: Sequence[Sequence[EngineLists]]) -> Iterator[tuple[list, list]]:
    """Yield the lists and the words of all blocks, for each engine."""
    for parts in zip(*blocks, strict=True):
        yield [part.entries for part in parts], [part.words for part in parts]


def node_lists(shape: TrainShape, features: Bytes | RowBlocks, worker: int) -> list[NodeList]:
    """Return a sparse node's lists, at address 0; empty for a dense node."""
    if not shape.node.sparse:
        return []
    found = totals(features, shape, worker)
    return [
        NodeList(0, int(entries), int(words)) for entries, words in zip(found.entries, found.words, strict=True)
    ]
