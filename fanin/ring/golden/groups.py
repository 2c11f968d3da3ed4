"""Golden model of an exchange in groups, bit for bit, and its bytes: all-reduces of rings, one after the other
(docs/systems/ring-groups.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import CodecConfig
from fanin.codec.golden.codecs import encode, roundtrip
from fanin.codec.golden.rounding import derived_seed
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.golden.random_bits import RandomBits
from fanin.ring.groups import Plan

Float32 = npt.NDArray[np.float32]


def exchange(
    gradients: Sequence[Float32], config: RingConfig, plan: Plan, *, seed: int = 1, first_job: int = 0
) -> Float32:
    """Return the sum that every worker of the plan ends with; ``gradients`` has one vector per worker.

    ``seed`` and ``first_job``, the number of the first round's job, determine the random bits, as ``job_bits``.
    Raises ValueError for another number of gradients, and as ``all_reduce`` does.
    """

    def reduce(number: int, ring: int, inputs: Sequence[Float32]) -> Float32:
        return all_reduce(inputs, config, bits=job_bits(seed, first_job + number, ring))

    return _final_vectors(gradients, plan, reduce)[0]


def exchanges(
    config: RingConfig, plan: Plan, *, seed: int = 1, first_job: int = 0
) -> Callable[[Sequence[Float32]], Float32]:
    """Return a model of exchanges that follow each other, as ``exchange``, to be called for each, in order."""
    jobs = itertools.count(first_job, len(plan.rounds))
    return lambda gradients: exchange(gradients, config, plan, seed=seed, first_job=next(jobs))


def job_bits(seed: int, job: int, ring: int) -> RandomBits:
    """Return the random bits of one of the rings of a round, whose job has the number ``job`` in the run."""
    return RandomBits(derived_seed(seed, job, ring))


def data_bytes(gradients: Sequence[Float32], config: RingConfig, plan: Plan) -> list[int]:
    """Return the bytes of all DATA frames of each round, without FCS and without retransmissions.

    Raises ValueError as ``exchange`` does.
    """
    sizes = [0] * len(plan.rounds)

    def reduce(number: int, ring: int, inputs: Sequence[Float32]) -> Float32:
        total, size = _reduce_and_count(inputs, config)
        sizes[number] += size
        return total

    _final_vectors(gradients, plan, reduce)
    return sizes


def _final_vectors(
    gradients: Sequence[Float32], plan: Plan, reduce: Callable[[int, int, Sequence[Float32]], Float32]
) -> list[Float32]:
    """Return the vector that each node holds at the end.

    ``reduce`` gets the numbers of a round and of one of its rings, and the ring's inputs in order of members.
    """
    if len(gradients) != plan.workers:
        raise ValueError(f"gradients must be those of {plan.workers} workers, not of {len(gradients)}")
    vectors = [np.ravel(gradient) for gradient in gradients]
    zeros = np.zeros_like(vectors[0])
    vectors += [zeros] * (plan.nodes - plan.workers)
    for number, plan_round in enumerate(plan.rounds):
        for index, ring in enumerate(plan_round.rings):
            inputs = [vectors[node] if node in ring.contributors else zeros for node in ring.members]
            total = reduce(number, index, inputs)
            for node in ring.receivers:
                vectors[node] = total
    return vectors


def _reduce_and_count(inputs: Sequence[Float32], config: RingConfig) -> tuple[Float32, int]:
    """Return the sum, and the bytes of the ring's DATA frames."""
    nodes, hops, size = len(inputs), 0, 0

    def hop(values: Float32) -> Float32:
        nonlocal hops, size
        hops += 1
        times = 1 if hops % nodes else nodes - 1  # each N-th hop is a total, which nodes forward unchanged
        codec = config.codec if hops % nodes > 1 else config.frame_codec
        size += times * _frame_bytes(values, config, codec)
        return roundtrip(values, config.codec)

    total = all_reduce(inputs, config, hop)
    return total, size


def _frame_bytes(values: Float32, config: RingConfig, codec: CodecConfig | None) -> int:
    """Return the bytes of a slice's frames: beats of the payload, and one beat per header."""
    beat, size = config.width // 8, 0
    for start in range(0, values.size, config.frame_values):
        frame = values[start : start + config.frame_values]
        payload = frame.nbytes if codec is None else len(encode(frame, codec))
        size += (-(-payload // beat) + 1) * beat
    return size
