"""Random bits of a ring's nodes, for codecs that round stochastically (docs/systems/ring.md, "Random bits")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import CodecConfig, is_stochastic
from fanin.codec.golden.codecs import roundtrip
from fanin.codec.golden.rounding import advance, derived_seed

Float32 = npt.NDArray[np.float32]
#: Maps values that a node sends to those that arrive. The numbers are the rank of the node, and the values that
#: it has encoded before in this all-reduce.
Send = Callable[[Float32, int, int], Float32]


@dataclass
class RandomBits:
    """Random bits of a job's nodes: one sequence per node, which continues from one all-reduce to the next.

    - ``seed``: seed of the job, 1 to 2^32 - 1; it gives each node another one.
    - ``values``: values that each node has encoded so far. All nodes encode as many.
    """

    seed: int = 1
    values: int = 0

    def node_seed(self, node: int, offset: int = 0) -> int:
        """Return the seed of the sequence that is left to a node after ``offset`` further values."""
        return advance(derived_seed(self.seed, node), self.values + offset)

    def sender(self, codec: CodecConfig | None) -> Send:
        """Return the round trips of an all-reduce's hops."""
        if codec is None or not is_stochastic(codec):
            return lambda values, node, offset: roundtrip(values, codec)
        return lambda values, node, offset: roundtrip(values, codec, self.node_seed(node, offset))
