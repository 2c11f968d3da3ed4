"""Effects of codecs on training, over seeds: INCEPTIONN's figures 13 and 14 and its table III, all codecs.

All trainings of a seed begin with the same weights and see the same samples in the same order. A codec is
therefore compared with no codec seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import Bf16, Bfp, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.sim.codec.exchanges import (
    AggregatorTree,
    Exchange,
    Ring,
    RingOfRings,
    RingsUnderAggregator,
    WorkerAggregator,
)
from fanin.sim.codec.tags import BOUNDS
from fanin.sim.codec.trainers import Training
from fanin.sim.codec.wire import AnyCodec, LegBytes, Traffic, Truncation, sum_legs

Float64 = npt.NDArray[np.float64]

NO_CODEC = "none"  #: key of ``CODECS`` without a codec; other keys are names for tables
TRUNCATIONS = (16, 22, 24)
STOCHASTIC = (Element.E4M3, Element.E2M1)  # elements that are also rounded stochastically
CODECS: dict[str, AnyCodec] = {
    NO_CODEC: None,
    **{f"INCEPTIONN 2^-{b}, {mode.name.lower()}": Inceptionn(b, mode) for b in BOUNDS for mode in Mode},
    **{f"{dropped} LSBs truncated": Truncation(dropped) for dropped in TRUNCATIONS},
    "BFP16": Bfp(),
    **{f"MX {element}": Mx(element) for element in Element},
    **{f"MX {element}, stochastic": Mx(element, rounding=Rounding.STOCHASTIC) for element in STOCHASTIC},
    "bf16": Bf16(),
    "fp16": Fp16(),
}
STRICT_CODEC = Inceptionn()
#: Exchanges of the paper by its names: WA is a worker aggregator, INC the ring, +C with the codec. Figure 1 has
#: hierarchies of groups of two workers.
EXCHANGES: dict[str, Exchange] = {
    "WA": WorkerAggregator(),
    "WA+C": WorkerAggregator(STRICT_CODEC),
    "INC": Ring(),
    "INC+C": Ring(STRICT_CODEC),
    "figure 1(a), +C": AggregatorTree(2, STRICT_CODEC),
    "figure 1(b), +C": RingsUnderAggregator(2, STRICT_CODEC),
    "figure 1(c), +C": RingOfRings(2, STRICT_CODEC),
}
TOLERANCE = 0.5  # percentage points by which an accuracy may be lower and still count as equal
EXTRA_EPOCHS = (1, 2, 4, 8)  # additional epochs that are tried, one after another
SAMPLE_INTERVAL = 20  # interval, in iterations, at which a sum is compared with the exact one


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a measure over seeds; the deviation of one seed is 0."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:z.1f} ± {self.deviation:.1f}"


def spread(values: Iterable[float]) -> Spread:
    """Return the spread of at least one value."""
    samples = list(values)
    return Spread(float(np.mean(samples)), float(np.std(samples, ddof=1)) if len(samples) > 1 else 0.0)


@dataclass(frozen=True)
class Run:
    """Result of a training.

    - ``accuracies``: accuracy after each epoch, in per cent.
    - ``traffic``: bytes of all iterations and legs.
    """

    accuracies: tuple[float, ...]
    traffic: LegBytes

    @property
    def last(self) -> float:
        """Accuracy after the last epoch."""
        return self.accuracies[-1]


def run(training: Training, exchange: Exchange) -> Run:
    """Train once, and return its accuracies and traffic."""
    epochs = list(training.run(exchange))
    traffic = sum_legs(epoch.traffic.total for epoch in epochs)
    return Run(tuple(100 * epoch.accuracy for epoch in epochs), traffic)


@dataclass(frozen=True)
class Effect:
    """Runs with a codec, and runs without a codec, each by seed from 0."""

    runs: Sequence[Run]
    base: Sequence[Run]

    @property
    def accuracy(self) -> Spread:
        """Accuracy after the last epoch."""
        return spread(run.last for run in self.runs)

    @property
    def lost(self) -> Spread:
        """Percentage points of accuracy that the codec costs after the same number of epochs."""
        return spread(base.last - run.last for run, base in zip(self.runs, self.base, strict=True))

    @property
    def ratio(self) -> Spread:
        """Compression ratio of all bytes without headers."""
        return spread(run.traffic.ratio for run in self.runs)

    @property
    def shares(self) -> tuple[Spread, ...]:
        """Per cent of the values in each of INCEPTIONN's forms. Raises ValueError for another codec."""
        return tuple(
            spread(form_shares) for form_shares in zip(*(run.traffic.shares for run in self.runs), strict=True)
        )


def effects(
    training: Training,
    seeds: int,
    codecs: Mapping[str, AnyCodec] = CODECS,
    on_run: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, Effect]]:
    """Yield the name of each codec and its effect on a ring's training.

    - ``training``: training, whose own seed is replaced.
    - ``seeds``: number of seeds: 0 to ``seeds`` - 1.
    - ``codecs``: codecs by name.
    - ``on_run``: called after each run.
    """

    def runs(codec: AnyCodec) -> list[Run]:
        results = []
        for seed in range(seeds):
            results.append(run(replace(training, seed=seed), Ring(codec)))
            on_run()
        return results

    base = runs(None)
    for name, codec in codecs.items():
        yield name, Effect(base if codec is None else runs(codec), base)


def more_epochs(training: Training, codec: AnyCodec, effect: Effect) -> list[int | None]:
    """Return, for each seed of ``effect``, the extra epochs that the codec needs (figure 13).

    The training with the codec must reach the accuracy without one, less ``TOLERANCE``. The result is 0 if it
    does so in as many epochs, else the least of ``EXTRA_EPOCHS`` that is enough, or None. A longer training
    starts anew, with the reductions of its learning rate spread over all its epochs.

    - ``training``, ``codec``: those of ``effect``, whose runs have the seeds 0, 1, ….
    """

    def extra_epochs(seed: int, goal: float) -> int | None:
        for extra in EXTRA_EPOCHS:
            longer = replace(training, seed=seed, epochs=training.epochs + extra)
            if run(longer, Ring(codec)).last >= goal:
                return extra
        return None

    goals = [base.last - TOLERANCE for base in effect.base]
    ends = [run.last for run in effect.runs]
    return [
        0 if end >= goal else extra_epochs(seed, goal)
        for seed, (end, goal) in enumerate(zip(ends, goals, strict=True))
    ]


@dataclass(frozen=True)
class Fidelity:
    """Fidelity of sums over a ring with a codec.

    - ``length``: Euclidean norm relative to that of the exact sum; 1 for an exact sum of zeros that is zero.
    - ``cosine``: cosine of the angle to the exact sum; 0 if one of the two is zero.
    """

    length: Spread
    cosine: Spread


def fidelities(training: Training, codecs: Mapping[str, AnyCodec] = CODECS) -> dict[str, Fidelity]:
    """Return the fidelity of each codec by name.

    The sums are those of every ``SAMPLE_INTERVAL``-th iteration of a training without a codec.
    """
    steps = training.steps(Ring(), Traffic())
    gradients = [step.gradients for index, step in enumerate(steps) if index % SAMPLE_INTERVAL == 0]
    exact = [np.asarray(np.sum(workers, axis=0, dtype=np.float64)) for workers in gradients]
    fidelity_by_codec = {}
    for name, codec in codecs.items():
        sums = [Ring(codec)(workers, Traffic()).astype(np.float64) for workers in gradients]
        lengths = [_relative_length(a, b) for a, b in zip(sums, exact, strict=True)]
        cosines = [_cosine(a, b) for a, b in zip(sums, exact, strict=True)]
        fidelity_by_codec[name] = Fidelity(spread(lengths), spread(cosines))
    return fidelity_by_codec


def _relative_length(a: Float64, b: Float64) -> float:
    """Return the norm of ``a`` over that of ``b``; 1 if both are 0, infinity if only ``b`` is."""
    length, exact_length = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if exact_length:
        return length / exact_length
    return math.inf if length else 1.0


def _cosine(a: Float64, b: Float64) -> float:
    """Return the cosine of two vectors; 0 if one of them is 0."""
    product = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / product if product else 0.0


def leg_traffic(
    training: Training, exchanges: Mapping[str, Exchange] = EXCHANGES
) -> Iterator[tuple[str, str, float, float]]:
    """Yield name of the exchange, leg, MB (10^6 bytes) that all nodes send in a mean iteration, and ratio."""
    for name, exchange in exchanges.items():
        epochs = list(training.run(exchange))
        iterations = sum(epoch.iterations for epoch in epochs)
        for leg in epochs[0].traffic.legs:
            total = sum_legs(epoch.traffic.legs[leg] for epoch in epochs)
            yield name, leg, total.sent / iterations / 1e6, total.ratio
