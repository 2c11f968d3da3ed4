"""Reference trainings in NumPy, without time: in the hardware's arithmetic, in binary32 and in binary64."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fanin.golden.mlp import Floats
from fanin.sim.learning.learner import Measures
from fanin.sim.learning.replica import DataParallel, Dataset, Exchange, State, measure, train


@dataclass(frozen=True)
class References:
    """Measures at the end of each epoch.

    - ``codec``: with the hardware's arithmetic, which the hardware must match bit for bit.
    - ``binary32``: the same without a codec.
    - ``binary64``: sums in binary64.
    """

    codec: list[Measures]
    binary32: list[Measures]
    binary64: list[Measures]
    final: State = field(compare=False, repr=False)  #: final state of ``codec``
    distance: float = 0.0  #: greatest difference of a weight from binary64's


def compare(
    job: DataParallel,
    data: Dataset,
    exchange: Exchange,
    plain_exchange: Exchange | None,
    *,
    state: State | None = None,
    single_vector: bool = False,
) -> References:
    """Train three times, by the hardware's exchange, without its codec, and in binary64.

    - ``exchange``: the hardware's sum of the nodes' gradients.
    - ``plain_exchange``: the same without a codec; None if ``exchange`` has no codec.
    - ``state``: state to continue from, converted to binary64 for the third training; None: the initial state.
    - ``single_vector``: as in ``train``, for the first two trainings.
    """
    with_codec, codec = _train(job, data, exchange, state, single_vector=single_vector)
    binary32 = (
        codec
        if plain_exchange is None
        else _train(job, data, plain_exchange, state, single_vector=single_vector)[1]
    )
    state64, exact = _train(job, data, _sum, _state_in_float64(state), np.float64)
    pairs = zip(with_codec.parameters, state64.parameters, strict=True)
    distance = max(float(np.abs(weights - weights64).max()) for weights, weights64 in pairs)
    return References(codec, binary32, exact, with_codec, distance)


def _train(
    job: DataParallel,
    data: Dataset,
    exchange: Exchange,
    state: State | None,
    kind: type[np.floating[Any]] = np.float32,
    *,
    single_vector: bool = False,
) -> tuple[State, list[Measures]]:
    measures: list[Measures] = []
    final_state = train(
        job,
        data,
        exchange,
        kind=kind,
        state=state,
        single_vector=single_vector,
        on_epoch=lambda epoch_state: measures.append(measure(job, data, epoch_state.parameters)),
    )
    return final_state, measures


def _sum(gradients: Sequence[Floats]) -> Floats:
    """Return the sum in the nodes' order."""
    return functools.reduce(np.add, gradients)


def _state_in_float64(state: State | None) -> State | None:
    if state is None:
        return None

    def to_float64(part: list[Floats]) -> list[Floats]:
        return [values.astype(np.float64) for values in part]

    return State(to_float64(state.parameters), to_float64(state.velocities), state.step)
