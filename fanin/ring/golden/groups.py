"""An exchange in groups, bit for bit, and its bytes: the rings' golden models, one after the other
(docs/systems/ring-groups.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fanin.codec.golden.codecs import encode, roundtrip
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.groups import Plan

Float32 = npt.NDArray[np.float32]


def exchange(gradients: Sequence[Float32], config: RingConfig, plan: Plan) -> Float32:
    """What every worker of the plan ends with; ``gradients`` are the workers'.

    Raises ValueError unless there is one for each, and as ``all_reduce``.
    """
    return _held(gradients, plan, lambda number, given: all_reduce(given, config))[0]


def data_bytes(gradients: Sequence[Float32], config: RingConfig, plan: Plan) -> list[int]:
    """Bytes of all DATA frames of each round, without FCS, none sent twice.

    Raises ValueError as ``exchange``.
    """
    sizes = [0] * len(plan.rounds)

    def reduce(number: int, given: Sequence[Float32]) -> Float32:
        total, size = _counted(given, config)
        sizes[number] += size
        return total

    _held(gradients, plan, reduce)
    return sizes


def _held(
    gradients: Sequence[Float32], plan: Plan, reduce: Callable[[int, Sequence[Float32]], Float32]
) -> list[Float32]:
    """What each node holds in the end.

    ``reduce`` gets a round's number and what the members of one of its rings give, in order.
    """
    if len(gradients) != plan.workers:
        raise ValueError(f"gradients must be those of {plan.workers} workers, not of {len(gradients)}")
    held = [np.ravel(gradient) for gradient in gradients]
    nothing = np.zeros_like(held[0])
    held += [nothing] * (plan.nodes - plan.workers)
    for number, each in enumerate(plan.rounds):
        for ring in each.rings:
            given = [held[node] if node in ring.gives else nothing for node in ring.members]
            total = reduce(number, given)
            for node in ring.takes:
                held[node] = total
    return held


def _counted(given: Sequence[Float32], config: RingConfig) -> tuple[Float32, int]:
    """The sum, and the bytes of the ring's DATA frames."""
    nodes, hops, size = len(given), 0, 0

    def hop(values: Float32) -> Float32:
        nonlocal hops, size
        hops += 1
        times = 1 if hops % nodes else nodes - 1  # each N-th is the total, which is forwarded as it is
        size += times * _frame_bytes(values, config)
        return roundtrip(values, config.codec)

    total = all_reduce(given, config, hop)
    return total, size


def _frame_bytes(values: Float32, config: RingConfig) -> int:
    """Bytes of the frames of a slice: the payload's beats, and one for the header."""
    beat, size = config.width // 8, 0
    for start in range(0, values.size, config.frame_values):
        frame = values[start : start + config.frame_values]
        payload = frame.nbytes if config.codec is None else len(encode(frame, config.codec))
        size += (-(-payload // beat) + 1) * beat
    return size
