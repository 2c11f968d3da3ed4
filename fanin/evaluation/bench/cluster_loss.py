"""Benchmark of CNN training over lossy links: throughput of both link modes by loss rate."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.flow.link import Wiring
from fanin.cnn.flow.node import Sizes
from fanin.cnn.flow.predict import Prediction, predict
from fanin.cnn.golden.image import state_image
from fanin.cnn.golden.network import initial_state
from fanin.cnn.memory import state_stages
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.training import Job
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.result import Result
from fanin.link import LinkConfig
from fanin.sim.cnn.cosim import ClusterCosim, JobFailed
from fanin.sim.cnn.epochs import Epoch

NETWORK, DEVICES = "tiny", "aaabcaaaaa"  # device of each stage; conv and bias have separate devices
GBPS, MEMORY_GBPS = 40.0, 50.0
LOSSES = (1e-4, 1e-3, 1e-2, 2e-2)  # per frame and link
FRAMES, BATCH = 256, 32
SEEDS = 3
MODEL_SEEDS = 6  # runs of the flow model
MAX_MODEL_DEVIATION = 5.0  # % of the model's rate
# Link modes. RELIABLE sends lost frames again. PUBLISHED does not, so a loss ends the run.
RELIABLE, PUBLISHED = "reliable", "published"
MODEL, EARLIER = "flow model", "go-back-N"
#: % of the lossless rate that the link of earlier versions kept, which went back to a lost frame: RTL, 3 seeds
GO_BACK_N = {1e-4: 99.6, 1e-3: 97.3, 1e-2: 70.5, 2e-2: 47.9}
MIN_RELATIVE_RATE = 85.0  # %, of the lossless rate, that the reliable link keeps at 1 % loss


@dataclass(frozen=True)
class RunLength:
    """Length of a run of ``FRAMES`` frames, which a lost frame may end early.

    ``frames``: frames with results. ``cycles``: clock cycles until the end.
    """

    frames: int
    cycles: int

    @property
    def frames_in_batches(self) -> int:
        """Number of frames in complete batches; training can resume after each batch."""
        return self.frames // BATCH * BATCH


class Trial:
    """The network on its devices, in one link mode."""

    def __init__(self, *, published: bool):
        self._network = EXAMPLES[NETWORK]
        placement = PlacedNetwork(self._network, tuple(DEVICES))
        self._cosim = ClusterCosim(placement.parts, published=published)

    @cached_property
    def _states(self) -> list[np.ndarray]:
        stages, states = self._network.stages, initial_state(self._network, 1)
        return [
            state_image(stages[i].layer, stages[i].parallelism, states[i]) for i in state_stages(self._network)
        ]

    @cached_property
    def _epoch(self) -> Epoch:
        rng = np.random.default_rng(5)
        image, label = (
            self._network.stages[i].layer.output for i in (self._network.images, self._network.labels)
        )
        images = rng.standard_normal((FRAMES, image.h, image.w, image.c)).astype(np.float32)
        labels = np.eye(label.words, dtype=np.float32)[rng.integers(0, label.words, FRAMES)]
        return Epoch(Job.of(FRAMES, BATCH, 0.1, 0.9), images, labels)

    def run(self, loss: float, seed: int) -> RunLength:
        """Train ``FRAMES`` frames over links that lose each frame with probability ``loss``."""
        link = LinkConfig(gbps=GBPS, drop=loss)
        try:
            run = self._cosim.run(self._states, [self._epoch], link=link, memory_gbps=MEMORY_GBPS, seed=seed)
        except JobFailed as failure:
            return RunLength(failure.results, failure.cycles)
        return RunLength(FRAMES, run.raw.cycles)


class Model:
    """Flow model of the reliable network on its devices."""

    def __init__(self) -> None:
        self._network = EXAMPLES[NETWORK]
        wiring = Wiring(rates=dict.fromkeys(DEVICES, GBPS * 1e9))
        flow = PlacedNetwork(self._network, tuple(DEVICES)).flow
        self._sizes = replace(Sizes.of(flow), links=wiring.links(self._network, DEVICES))
        self._lossless = self._predict(self._sizes)

    def _predict(self, sizes: Sizes) -> Prediction:
        return predict(self._network, sizes, batch=BATCH, batches=FRAMES // BATCH)

    def share(self, loss: float) -> float:
        """Return the rate that training keeps, in % of the lossless one: mean of ``MODEL_SEEDS`` seeds."""
        frame_loss = 1 - (1 - loss) ** 2  # a frame crosses two links
        period = self._lossless.period
        sizes = (self._sizes.with_losses(frame_loss, period, seed) for seed in range(MODEL_SEEDS))
        return 100 * sum(self._lossless.job / self._predict(lossy).job for lossy in sizes) / MODEL_SEEDS


def _beside_model(figure: Figure, loss: float, share: float, predicted: float) -> Result:
    """Add the curves of the model and of earlier versions; return how far RTL is off the model."""
    figure.add(MODEL, 100 * loss, predicted)
    figure.add(EARLIER, 100 * loss, GO_BACK_N[loss])
    name, note = f"{RELIABLE}, {100 * loss:g} % lost: off the model", f"the model: {predicted:.1f} %"
    return Result(name, 100 * abs(share / predicted - 1), "%", MAX_MODEL_DEVIATION, note=note)


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield each figure once it is measured, then write the picture.

    Takes two builds and about a minute of runs.
    """
    paths = outputs("cluster-loss", args.output)
    figure = Figure("cluster-loss", "Training over a network that loses frames", "loss, %", "% of lossless")
    model, trials = Model(), {name: Trial(published=name == PUBLISHED) for name in (RELIABLE, PUBLISHED)}
    lossless_runs = {name: trial.run(0, 0) for name, trial in trials.items()}
    for name, lossless_run in lossless_runs.items():
        yield Result(f"{name}, no loss: cycles a frame", lossless_run.cycles / lossless_run.frames, "cycles")
    for loss in LOSSES:
        for name, trial in trials.items():
            runs = [trial.run(loss, seed) for seed in range(SEEDS)]
            lossless_rate = lossless_runs[name].frames / lossless_runs[name].cycles
            rate = sum(run.frames_in_batches for run in runs) / sum(run.cycles for run in runs)
            share = 100 * rate / lossless_rate
            limit = MIN_RELATIVE_RATE if name == RELIABLE and loss <= 1e-2 else None
            figure.add(name, 100 * loss, share)
            yield Result(f"{name}, {100 * loss:g} % lost", share, "% of lossless", limit, at_least=True)
            if name == RELIABLE:
                yield _beside_model(figure, loss, share, model.share(loss))
            if name == PUBLISHED:
                frames = sum(run.frames for run in runs) / SEEDS
                yield Result(f"{name}, {100 * loss:g} % lost: frames until the end", frames, "frames")
    figure.note = (
        f"{NETWORK} on three devices, {FRAMES} frames in batches of {BATCH}, {SEEDS} seeds. Published: "
        "a loss ends the run, which goes on from its last batch. Go-back-N: the link of earlier versions."
    )
    write([figure], paths)
