"""Reference trainings without hardware and time: in the hardware's arithmetic, in binary32 and in binary64."""

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
    plain: Exchange | None,
    *,
    state: State | None = None,
    whole: bool = False,
) -> References:
    """Train three times; ``plain`` is the exchange without a codec, None if ``exchange`` has none.

    Training continues from ``state``, which binary64 takes over unchanged. ``whole`` is that of ``train``.
    """
    with_codec, codec = _train(job, data, exchange, state, whole=whole)
    binary32 = codec if plain is None else _train(job, data, plain, state, whole=whole)[1]
    wide, exact = _train(job, data, _sum, _widened(state), np.float64)
    pairs = zip(with_codec.parameters, wide.parameters, strict=True)
    distance = max(float(np.abs(mine - theirs).max()) for mine, theirs in pairs)
    return References(codec, binary32, exact, with_codec, distance)


def _train(
    job: DataParallel,
    data: Dataset,
    exchange: Exchange,
    state: State | None,
    kind: type[np.floating[Any]] = np.float32,
    *,
    whole: bool = False,
) -> tuple[State, list[Measures]]:
    found: list[Measures] = []
    end = train(
        job,
        data,
        exchange,
        kind=kind,
        state=state,
        whole=whole,
        each_epoch=lambda now: found.append(measure(job, data, now.parameters)),
    )
    return end, found


def _sum(gradients: Sequence[Floats]) -> Floats:
    """Return the sum in the nodes' order."""
    return functools.reduce(np.add, gradients)


def _widened(state: State | None) -> State | None:
    if state is None:
        return None

    def wide(part: list[Floats]) -> list[Floats]:
        return [values.astype(np.float64) for values in part]

    return State(wide(state.parameters), wide(state.velocities), state.step)
