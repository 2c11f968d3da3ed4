"""INCEPTIONN's figure 14 on scikit-learn's digits: accuracy and compression ratio of each codec and exchange.

``python -m fanin.sim.codec.figure14 --seeds 3`` prints the tables of docs/systems/gradient-training.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fanin.codec import Bfp, Inceptionn, Mode
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
from fanin.sim.codec.wire import Truncation, together

STRICT = Inceptionn()
CODECS: dict[str, Exchange] = {
    "none": Ring(),
    **{f"INCEPTIONN 2^-{b}, {mode.name.lower()}": Ring(Inceptionn(b, mode)) for b in BOUNDS for mode in Mode},
    **{f"{dropped} LSBs truncated": Ring(Truncation(dropped)) for dropped in (16, 22, 24)},
    "BFP16": Ring(Bfp()),
}
EXCHANGES: dict[str, Exchange] = {
    "WA": WorkerAggregator(),
    "WA+C": WorkerAggregator(STRICT),
    "INC": Ring(),
    "INC+C": Ring(STRICT),
    "figure 1(a), +C": AggregatorTree(2, STRICT),
    "figure 1(b), +C": RingsUnderAggregator(2, STRICT),
    "figure 1(c), +C": RingOfRings(2, STRICT),
}
SHOWN = (1, 2, 5, 10, 20)  # epochs
TRAFFIC_EPOCHS = 5


def accuracies(exchanges: Mapping[str, Exchange], trainings: Sequence[Training]) -> Iterator[str]:
    """A Markdown row for each exchange: its ratio, and the mean accuracy of the trainings after some epochs."""
    shown = [epoch for epoch in SHOWN if epoch <= trainings[0].epochs]
    yield f"| | ratio | {' | '.join(f'epoch {epoch}' for epoch in shown)} | lowest, highest |"
    yield "|" + "---|" * (len(shown) + 3)
    for name, exchange in exchanges.items():
        runs = [list(training.run(exchange)) for training in trainings]
        last = [100 * run[-1].accuracy for run in runs]
        means = [f"{100 * np.mean([run[epoch - 1].accuracy for run in runs]):.1f} %" for epoch in shown]
        ratio = together(epoch.traffic.total for run in runs for epoch in run).ratio
        yield f"| {name} | {ratio:.2f} | {' | '.join(means)} | {min(last):.1f}, {max(last):.1f} % |"


def traffic(exchanges: Mapping[str, Exchange], training: Training) -> Iterator[str]:
    """A Markdown row for each leg of each exchange, with the bytes of all nodes in an average iteration."""
    yield "| | leg | MB an iteration | ratio |"
    yield "|---|---|---|---|"
    for name, exchange in exchanges.items():
        run = list(training.run(exchange))
        iterations = sum(epoch.iterations for epoch in run)
        for leg in run[0].traffic.legs:
            whole = together(epoch.traffic.legs[leg] for epoch in run)
            yield f"| {name} | {leg} | {whole.sent / iterations / 1e6:.2f} | {whole.ratio:.2f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m fanin.sim.codec.figure14", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    trainings = [Training(epochs=args.epochs, seed=seed) for seed in range(args.seeds)]
    for row in accuracies(CODECS, trainings):
        print(row, flush=True)
    for row in traffic(EXCHANGES, Training(epochs=TRAFFIC_EPOCHS)):
        print(row, flush=True)
