"""A training run: data, nodes, co-simulation, and the comparison with the golden model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin import __version__, fixed
from fanin.errors import DoesNotFit, InputError
from fanin.fixed import Loss
from fanin.glm import MICRO_BATCH, GlmConfig, TrainShape
from fanin.golden.glm import metrics
from fanin.golden.glm.float64 import train_float64
from fanin.golden.glm.layout import columns_of
from fanin.golden.glm.model import GlmModel, Label
from fanin.golden.glm.quantise import Float64
from fanin.golden.glm.train import train as train_golden
from fanin.hbm import Hbm
from fanin.hdl.aggregation.job import TIMEOUT_BITS
from fanin.seed import MAX_SEED
from fanin.sim.cosim.run import Progress, RunResult
from fanin.sim.cosim.waves import Waveform
from fanin.sim.glm import data
from fanin.sim.glm.boards import Boards
from fanin.sim.glm.cosim import Cosim, TrainRun
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.make import check_switch

Int32 = npt.NDArray[np.int32]

MAX_TIMEOUT = (1 << TIMEOUT_BITS - 1) - 1  # cycles: deadlines are compared modulo 2^32
RISE = 0.1  # of chance's loss: what mini-batches may add to the best epoch's loss and take away again


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Everything that decides the outcome of a run."""

    data: str
    target: str | None = None  #: column of a CSV file that has the labels; by default its last one
    node: GlmConfig
    network: NetworkConfig
    loss: Loss
    workers: int
    precision: int
    batch: int
    vanilla: bool = False  #: forward and backward of a mini-batch do not overlap
    epochs: int
    lr: float
    l2: float = 0.0  #: λ that was asked for; the nearest one that nodes have is trained with
    bias: bool
    shuffle: bool
    test: float
    seed: int
    clock_mhz: float
    hbm: Hbm | None = None  #: what samples and labels lie in; else behind a constant latency

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs must be at least 1, not {self.epochs}")
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"seed must be in 0…{MAX_SEED}, not {self.seed}")
        if self.l2 and not self.node.l2:
            raise InputError(
                f"l2: the weights of the nodes cannot decay, so that l2 must be 0, not {self.l2:g}"
            )
        operations = (self.network.slots or self.node.slots) // self.node.protocol.slots_per_operation
        if self.vanilla and self.batch > operations * MICRO_BATCH:
            raise InputError(
                f"vanilla: the slots hold {operations:,} micro-batches of a mini-batch: --batch "
                f"{operations * MICRO_BATCH:,} fits, not {self.batch:,}"
            )
        check_timeout(self.network.timeout_ns, self.clock_mhz)


def check_timeout(timeout_ns: float, clock_mhz: float) -> None:
    """Raise InputError for a timeout that a node with this clock cannot count."""
    longest = MAX_TIMEOUT * 1000 / clock_mhz if clock_mhz > 0 else math.inf
    if not 0 < timeout_ns <= longest:
        raise InputError(f"timeout must be in (0, {longest:.6g}] ns, not {timeout_ns:g}")


@dataclass(frozen=True)
class EpochResult:
    """The model at the end of an epoch on the quantised training samples, and the epoch's cycles."""

    loss: float
    accuracy: float
    cycles: int


@dataclass(frozen=True)
class Reference:
    """The golden model behind an epoch, and its loss on the quantised training samples."""

    model: Int32
    loss: float


@dataclass(frozen=True)
class TrainResult:
    """What a run yields. ``golden_loss`` and ``float64_…``: of the same samples, per epoch.

    ``chance_loss``: theirs under a model of zeros (logistic: ln 2).
    """

    options: TrainOptions
    against_the_rest: Label | None  # of more than two classes, the one that is told from the others
    shape: TrainShape
    decay: fixed.Decay
    epochs: list[EpochResult]
    golden_loss: list[float]
    float64_loss: list[float]
    float64_accuracy: list[float]
    chance_loss: float
    test_accuracy: float | None
    model: GlmModel
    bit_exact: bool
    verilog_sha256: str  # on boards: their builds
    run: TrainRun = field(repr=False)

    @property
    def l2(self) -> float:
        """λ of the training: the nearest to the one asked for that nodes have."""
        return fixed.l2_of(self.decay.shift, self.options.lr)

    @property
    def cycles(self) -> int:
        """Cycles of all epochs."""
        return sum(epoch.cycles for epoch in self.epochs)

    @property
    def cycles_ideal(self) -> int:
        """Cycles that all epochs would take at one word a cycle without any wait."""
        shape = self.shape
        return self.options.epochs * shape.micro_batches_per_epoch * shape.words_per_micro_batch

    def total(self, *counters: str) -> int:
        """Counters added up over all nodes."""
        return sum(node[name] for node in self.run.counters for name in counters)

    @property
    def frames_rejected(self) -> int:
        """Frames that a node or the switch dropped: corrupt, malformed, foreign or stale."""
        raw = self.run.raw
        nodes = self.total(*(name for name in self.run.counters[0] if name.startswith("bad_")), "stale")
        switch = (
            raw.switch["malformed"] + raw.switch["foreign"] + sum(job["stale"] for job in raw.jobs.values())
        )
        return nodes + switch + sum(link["up"]["fcs_errors"] for link in raw.links)

    @property
    def warning(self) -> str:
        """Why the model is none to be content with, in a line; empty where its loss falls."""
        return warning_of([epoch.loss for epoch in self.epochs], self.chance_loss, self.options.lr)

    def percentile(self, share: float) -> float:
        """A percentile of the AllReduce latency, in ns."""
        return float(np.percentile(self.run.allreduce_ns, share))

    def as_json(self) -> dict[str, Any]:
        """The result as ``fanin train --json`` and ``run.json`` have it."""
        raw = self.run.raw
        return {
            "fanin": __version__,
            "bit_exact": self.bit_exact,
            "against_the_rest": self.against_the_rest,
            "epochs": [vars(epoch) for epoch in self.epochs],
            "test_accuracy": self.test_accuracy,
            "cycles": self.cycles,
            "cycles_ideal": self.cycles_ideal,
            "utilization": self.cycles_ideal / self.cycles,
            "allreduce_ns": {"p50": self.percentile(50), "p99": self.percentile(99)},
            "packets": sum(raw.frames.values()),
            "retransmissions": self.total("retransmissions"),
            "duplicates": self.total("duplicates"),
            "frames_rejected": self.frames_rejected,
            "clamps": self.total("clamps"),
            "verilog_sha256": self.verilog_sha256,
            "l2": self.l2,
            "decay_shift": self.decay.shift,
            "golden_loss": self.golden_loss,
            "float64_loss": self.float64_loss,
            "float64_accuracy": self.float64_accuracy,
            "chance_loss": self.chance_loss,
            "warning": self.warning or None,
            "options": options_json(self.options),
            **observations(self.run),
        }


def warning_of(losses: Sequence[float], chance: float, rate: float) -> str:
    """What is wrong with a run's losses, epoch by epoch: one exceeds chance, or they end far above the best."""
    advice = f"a --lr below {rate:g} may help"
    for epoch, loss in enumerate(losses, start=1):
        if loss > chance:
            return f"the loss of epoch {epoch}, {loss:.4g}, exceeds chance, {chance:.4g}: {advice}"
    best, last = min(losses), losses[-1]
    if last > best + RISE * chance:
        return f"the loss rises, from {best:.4g} after epoch {losses.index(best) + 1} to {last:.4g}: {advice}"
    return ""


def options_json(options: TrainOptions) -> dict[str, Any]:
    """The options by name, configurations as dictionaries."""
    network = vars(options.network) | {"link": vars(options.network.link)}
    network.pop("make_switch")
    hbm = vars(options.hbm) if options.hbm else None
    return vars(options) | {
        "loss": options.loss.name.lower(),
        "node": vars(options.node),
        "network": network,
        "hbm": hbm,
    }


def observations(run: TrainRun) -> dict[str, Any]:
    """What was seen of nodes, links and switch; of a run that failed, up to then."""
    raw = run.raw
    return {
        "counters": run.counters,
        "first_packet": raw.first_packet,
        "links": raw.links,
        "switch": raw.switch,
        "jobs": raw.jobs,
    }


class Trainer:
    """A run in two steps, so that the command can say what it is doing: simulate, compare.

    On ``nodes``, of targets or of two classes, or of one of several against the rest. Raises InputError.
    """

    def __init__(
        self,
        options: TrainOptions,
        dataset: data.Dataset,
        nodes: Callable[[], Cosim | Boards],
        *,
        against_the_rest: Label | None = None,
    ):
        self.options = options
        self.against_the_rest = against_the_rest
        self.dataset = dataset
        self.shape = shape_of(options, *dataset.features.shape)
        self.labels = fixed.labels(dataset.labels, options.loss, options.node.frac)
        self.rate = fixed.learning_rate(options.lr / options.batch)
        bias = self.shape.columns - 1 if options.bias else None
        self.decay = fixed.decay_of(options.l2, options.lr, spared=bias)
        self.nodes = nodes()
        self._golden = train_golden(
            dataset.features,
            self.labels,
            self.shape,
            loss=options.loss,
            rate=self.rate,
            epochs=options.epochs,
            decay=self.decay,
        )
        self._references: list[Reference] = []

    @property
    def operations(self) -> int:
        """AllReduces of the whole run, those of all nodes added up."""
        shape = self.shape
        per_epoch = shape.micro_batches_per_epoch
        if shape.data_parallel:
            per_epoch = shape.mini_batches * shape.operations
        nodes = len(self.options.network.here) or self.options.workers
        return nodes * self.options.epochs * per_epoch

    def simulate(
        self, *, pcap: Path | None = None, progress: Callable[[Progress], None] | None = None
    ) -> TrainRun:
        """Train on the simulated nodes. Raises SimulationFailed."""
        return self.nodes.train(
            self.shape,
            self.dataset.features,
            self.labels,
            loss=self.options.loss,
            rate=self.rate,
            epochs=self.options.epochs,
            decay=self.decay,
            network=self.options.network,
            pcap=pcap,
            progress=progress,
        )

    def golden(self, epochs: int) -> Sequence[Reference]:
        """The golden model behind each of the first epochs; trained once, no further than was asked for."""
        for epoch in islice(self._golden, epochs - len(self._references)):
            self._references.append(Reference(epoch.model, self._score(epoch.model).loss))
        return self._references[:epochs]

    def partial(self, result: RunResult) -> TrainRun:
        """What came out of a simulation that failed."""
        return self.nodes.partial(result)

    def compare(self, run: TrainRun) -> TrainResult:
        """Train the golden models, and put them beside the simulated one.

        Where not all workers are here, the columns of the others are the golden model's.
        """
        options, dataset = self.options, self.dataset
        golden = self.golden(options.epochs)
        float64 = list(
            train_float64(
                dataset.features,
                dataset.labels,
                loss=options.loss,
                precision=options.precision,
                batch=options.batch,
                rate=options.lr / options.batch,
                epochs=options.epochs,
                decay=self.decay,
            )
        )
        held = columns_of(self.shape, options.network.here or range(options.workers))
        pairs = [(found, of.model) for found, of in zip(run.models, golden, strict=True)]
        same = all(np.array_equal(found[held], expected[held]) for found, expected in pairs)
        models = [np.where(held, found, expected) for found, expected in pairs]
        scores = [self._score(model) for model in models]
        exact = [self._score_float64(model) for model in float64]
        return TrainResult(
            options=options,
            against_the_rest=self.against_the_rest,
            shape=self.shape,
            decay=self.decay,
            epochs=[EpochResult(*score, cycles) for score, cycles in zip(scores, run.cycles, strict=True)],
            golden_loss=[epoch.loss for epoch in golden],
            float64_loss=[score.loss for score in exact],
            float64_accuracy=[score.accuracy for score in exact],
            chance_loss=metrics.score(np.zeros(self.shape.samples), dataset.labels, options.loss).loss,
            test_accuracy=self._test_accuracy(models[-1]),
            model=self._model(models[-1], float64[-1]),
            bit_exact=same and run.replicas_equal,
            verilog_sha256=self.nodes.digest,
            run=run,
        )

    def _model(self, weights: Int32, float64: Float64) -> GlmModel:
        options, dataset = self.options, self.dataset
        return GlmModel(
            loss=options.loss,
            weights=weights,
            float64=float64,
            ranges=dataset.ranges,
            precision=options.precision,
            frac=options.node.frac,
            bias=options.bias,
            l2=fixed.l2_of(self.decay.shift, options.lr),
            classes=dataset.classes if options.loss.classifies and self.against_the_rest is None else None,
            columns=dataset.columns,
            target=dataset.target,
        )

    def _score(self, model: Int32) -> metrics.Score:
        fa = metrics.activations(
            self.dataset.features, model, precision=self.options.precision, frac=self.options.node.frac
        )
        return metrics.score(fa, self.dataset.labels, self.options.loss)

    def _score_float64(self, model: Float64) -> metrics.Score:
        fa = metrics.activations_float64(self.dataset.features, model, precision=self.options.precision)
        return metrics.score(fa, self.dataset.labels, self.options.loss)

    def _test_accuracy(self, model: Int32) -> float | None:
        if not len(self.dataset.test_labels):
            return None
        fa = metrics.activations(
            self.dataset.test_features, model, precision=self.options.precision, frac=self.options.node.frac
        )
        return metrics.score(fa, self.dataset.test_labels, self.options.loss).accuracy


def shape_of(options: TrainOptions, samples: int, columns: int, boards: Boards | None = None) -> TrainShape:
    """The shape of a data set on the nodes. Raises InputError where it does not fit them, or the boards."""
    try:
        shape = TrainShape(
            node=options.node,
            workers=options.workers,
            samples=samples,
            columns=columns,
            batch=options.batch,
            precision=options.precision,
            vanilla=options.vanilla,
        )
        if boards:
            boards.check_fits(shape)
        return shape
    except DoesNotFit as error:
        raise InputError(f"{options.data}: {error}") from error


def trainers(
    options: TrainOptions,
    *,
    boards: Boards | None = None,
    wave: Waveform | None = None,
    quiet: bool = False,
) -> list[Trainer]:
    """Load the data and, unless it is to train on ``boards``, build the simulator; the run, ready to go.

    The simulator writes ``wave``. Of more than two classes a run for each, in their order, which tells it from
    the rest, on the same nodes. Raises InputError.
    """
    dataset = data.load(
        options.data,
        options.loss,
        target=options.target,
        precision=_checked_precision(options.precision),
        bias=options.bias,
        shuffle=options.shuffle,
        test=options.test,
        seed=options.seed,
        check=partial(shape_of, options, boards=boards),
    )
    check_switch(options.network.switch)

    @cache
    def nodes() -> Cosim | Boards:
        return boards or Cosim(
            options.node,
            workers=options.workers,
            here=options.network.here,
            clock_mhz=options.clock_mhz,
            hbm=options.hbm,
            wave=wave,
            quiet=quiet,
        )

    if not dataset.classes or len(dataset.classes) == 2:
        return [Trainer(options, dataset, nodes)]
    if options.network.ports:
        raise InputError(
            f"{options.data}: {len(dataset.classes)} classes are as many trainings, and the job of the switch "
            "at --ports is for one"
        )
    return [
        Trainer(options, dataset.against_the_rest(place), nodes, against_the_rest=label)
        for place, label in enumerate(dataset.classes)
    ]


def _checked_precision(precision: int) -> int:
    """Quantising comes before ``TrainShape`` could refuse it."""
    if not 1 <= precision <= fixed.MAX_PRECISION:
        raise InputError(f"precision must be in 1…{fixed.MAX_PRECISION} bits, not {precision}")
    return precision
