"""Training run: data, nodes, co-simulation, and the comparison with the golden model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from fanin import fixed
from fanin.base.errors import DoesNotFit, InputError
from fanin.glm.facts import SparseChoice, TrainShape, check_one_switch, check_precision
from fanin.glm.golden import metrics
from fanin.glm.golden.float64 import train_float64
from fanin.glm.golden.layout import columns_of
from fanin.glm.golden.model import GlmModel, Label
from fanin.glm.golden.quantise import Float64, Samples
from fanin.glm.golden.rate import default_rate
from fanin.glm.golden.sample_layout import SampleLayout, choose_layout
from fanin.glm.golden.train import train as train_golden
from fanin.sim.cosim.run import Progress, RunResult
from fanin.sim.cosim.waves import Waveform
from fanin.sim.glm import data
from fanin.sim.glm.boards import Boards
from fanin.sim.glm.cosim import Cosim
from fanin.sim.glm.course import WHOLE_TRAINING, Course, History, TrainRun
from fanin.sim.glm.result import EpochResult, GlmTraining, TrainResult
from fanin.sim.switch.make import check_switch

Int32 = npt.NDArray[np.int32]
Placed: TypeAlias = tuple[SampleLayout, Samples]  # layout of the training samples, and the samples in it


@dataclass(frozen=True)
class Reference:
    """Golden model after an epoch, and its loss on the quantised training samples."""

    model: Int32
    loss: float


class Trainer:
    """A run in two steps, simulate and compare, so that the command can report its progress.

    The run has targets, two classes, or one of several classes against the rest. Models, inside and outside,
    have the data's order of columns; only the nodes and ``_golden`` use that of ``layout``. Raises InputError.
    """

    def __init__(
        self,
        training: GlmTraining,
        dataset: data.Dataset,
        placed: Placed,
        nodes: Callable[[], Cosim | Boards],
        *,
        against_the_rest: Label | None = None,
    ):
        self.training = training
        self.against_the_rest = against_the_rest
        self.dataset = dataset
        self.layout, self._features = placed
        self.shape = self.layout.shape
        self.labels = fixed.labels(dataset.labels, training.loss, training.node.frac)
        self.rate = fixed.rate_of(training.gamma, training.batch)
        bias = self.layout.columns - 1 if training.bias else None
        self.decay = fixed.decay_of(training.l2, training.gamma, spared=bias)
        self.nodes = nodes()
        self._golden = train_golden(
            self._features,
            self.labels,
            self.shape,
            loss=training.loss,
            rate=self.rate,
            epochs=training.epochs,
            decay=self.layout.decay_on_nodes(self.decay),
        )
        self._references: list[Reference] = []

    @property
    def operations_each(self) -> int:
        """AllReduces of an epoch, summed over all nodes."""
        shape = self.shape
        per_epoch = shape.micro_batches_per_epoch
        if shape.data_parallel:
            per_epoch = shape.mini_batches * shape.operations
        return (len(self.training.network.here) or self.training.workers) * per_epoch

    @property
    def operations(self) -> int:
        """AllReduces of the whole run, summed over all nodes."""
        return self.training.epochs * self.operations_each

    def simulate(
        self,
        *,
        course: Course = WHOLE_TRAINING,
        stops: tuple[tuple[int | str, float], ...] | None = None,
        pcap: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> TrainRun:
        """Train on the nodes the part of the run in ``course``. Raises SimulationFailed.

        ``stops`` replaces the network's.
        """
        network = self.training.network
        run = self.nodes.train(
            self.shape,
            self._features,
            self.labels,
            loss=self.training.loss,
            rate=self.rate,
            epochs=self.training.epochs,
            decay=self.layout.decay_on_nodes(self.decay),
            network=network if stops is None else replace(network, stops=stops),
            course=self._on_nodes(course),
            pcap=pcap,
            progress=progress,
        )
        return self._of_data(run)

    def _on_nodes(self, course: Course) -> Course:
        """Return a course with the model in the nodes' order, whose ``keep`` gets runs in the data's order."""
        keep = course.keep
        if course.model is not None:
            course = replace(course, model=self.layout.to_nodes(course.model))
        if keep is not None:
            course = replace(course, keep=lambda run: keep(self._of_data(run)))
        return course

    def _of_data(self, run: TrainRun) -> TrainRun:
        """Return a run of the nodes with its models in the data's order."""
        return replace(run, models=[self.layout.to_data(model) for model in run.models])

    def golden(self, epochs: int) -> Sequence[Reference]:
        """Return the golden model after each of the first epochs; trains each epoch once, on demand."""
        for epoch in islice(self._golden, max(epochs - len(self._references), 0)):
            model = self.layout.to_data(epoch.model)
            self._references.append(Reference(model, self._score(model).loss))
        return self._references[:epochs]

    def partial(self, result: RunResult) -> TrainRun:
        """Return the result of a failed simulation."""
        return self.nodes.partial(result)

    def history(self, run: TrainRun, earlier: History | None = None) -> History | None:
        """Return the epochs of an earlier run and of one so far; None if a bit differs from the golden model's.

        If only some workers are here, the columns of the other workers are the golden model's.
        """
        first = earlier.epoch if earlier else 0
        models, is_golden = self._completed(run, first)
        if not (models and is_golden and run.replicas_equal):
            return None
        total = earlier.followed_by(run) if earlier else run
        scores = [(*self._score(model), cycles) for model, cycles in zip(models, run.cycles, strict=True)]
        return History(
            epoch=first + len(models),
            model=models[-1],
            scores=(*(earlier.scores if earlier else ()), *scores),
            counters=total.counters,
            allreduce_ns=total.allreduce_ns,
            raw=total.raw,
        )

    def _completed(self, run: TrainRun, first: int) -> tuple[list[Int32], bool]:
        """Return the models of a run's epochs, and whether all equal the golden models.

        Columns of workers that other processes simulate are the golden model's. ``first``: number of epochs
        before the run.
        """
        training = self.training
        golden = self.golden(first + len(run.models))[first:]
        mask = self.layout.to_data(columns_of(self.shape, training.network.here or range(training.workers)))
        pairs = [(model, reference.model) for model, reference in zip(run.models, golden, strict=True)]
        is_golden = all(np.array_equal(model[mask], expected[mask]) for model, expected in pairs)
        return [np.where(mask, model, expected) for model, expected in pairs], is_golden

    def compare(self, run: TrainRun, earlier: History | None = None) -> TrainResult:
        """Train the golden models, and compare the simulated one with them.

        ``earlier`` has the epochs before the run. If only some workers are here, the columns of the other
        workers are the golden model's.
        """
        training, dataset = self.training, self.dataset
        golden = self.golden(training.epochs)
        float64 = list(
            train_float64(
                dataset.features,
                dataset.labels,
                loss=training.loss,
                precision=training.precision,
                batch=training.batch,
                rate=training.gamma / training.batch,
                epochs=training.epochs,
                decay=self.decay,
            )
        )
        models, is_golden = self._completed(run, earlier.epoch if earlier else 0)
        scores = [self._score(model) for model in models]
        epochs = [EpochResult(*score) for score in earlier.scores] if earlier else []
        epochs += [EpochResult(*score, cycles) for score, cycles in zip(scores, run.cycles, strict=True)]
        last = models[-1] if models else cast("History", earlier).model
        float64_scores = [self._score_float64(model) for model in float64]
        return TrainResult(
            training=training,
            against_the_rest=self.against_the_rest,
            shape=self.shape,
            decay=self.decay,
            epochs=epochs,
            golden_loss=[epoch.loss for epoch in golden],
            float64_loss=[score.loss for score in float64_scores],
            float64_fit=[score.fit for score in float64_scores],
            chance_loss=self._judge(np.zeros(self.shape.samples)).loss,
            **self._test_figures(last),
            model=self._model(last, float64[-1]),
            bit_exact=is_golden and run.replicas_equal,
            verilog_sha256=self.nodes.digest,
            run=earlier.followed_by(run) if earlier else run,
            layout=self.layout,
        )

    def _model(self, weights: Int32, float64: Float64) -> GlmModel:
        training, dataset = self.training, self.dataset
        return GlmModel(
            loss=training.loss,
            weights=weights,
            float64=float64,
            ranges=dataset.ranges,
            precision=training.precision,
            frac=training.node.frac,
            bias=training.bias,
            l2=fixed.l2_of(self.decay.shift, training.gamma),
            classes=dataset.classes if training.loss.classifies and self.against_the_rest is None else None,
            columns=dataset.columns,
            target=dataset.target,
            first_index=dataset.first_index,
            scale=dataset.scale,
        )

    def _score(self, model: Int32) -> metrics.Score:
        fa = metrics.activations(
            self.dataset.features, model, precision=self.training.precision, frac=self.training.node.frac
        )
        return self._judge(fa)

    def _score_float64(self, model: Float64) -> metrics.Score:
        fa = metrics.activations_float64(self.dataset.features, model, precision=self.training.precision)
        return self._judge(fa)

    def _judge(self, fa: Float64) -> metrics.Score:
        """Return the score of sums of the training samples; the loss of targets is in their units."""
        loss, fit = metrics.score(fa, self.dataset.labels, self.training.loss)
        return metrics.Score(loss * self.dataset.scale.scale**2, fit)

    def _test_figures(self, model: Int32) -> dict[str, float | None]:
        """Return the fit of the held-out samples and, of targets, the RMS error in their unit."""
        if not len(self.dataset.test_labels):
            return {"test_fit": None}
        fa = metrics.activations(
            self.dataset.test_features, model, precision=self.training.precision, frac=self.training.node.frac
        )
        labels, loss = self.dataset.test_labels, self.training.loss
        error = None if loss.classifies else self.dataset.scale.scale * metrics.rms_error(fa, labels)
        return {"test_fit": metrics.score(fa, labels, loss).fit, "test_rms_error": error}


def check_shape(training: GlmTraining, boards: Boards | None, samples: int, columns: int, is_csr: bool) -> None:
    """Raise InputError if a data set fits no nodes or boards, as far as its size tells.

    ``is_csr``: True if the samples' source is CSR; the sample FIFO of sparse nodes is then not checked.
    """
    if not training.network.tree:
        check_one_switch(training.workers)
    node = training.node
    may_be_sparse = training.sparse is SparseChoice.ON or (training.sparse is SparseChoice.AUTO and is_csr)
    is_sparse = boards.config.sparse if boards else may_be_sparse and not node.sparse_obstacle
    try:
        shape = TrainShape(
            node=replace(node, sparse=is_sparse),
            workers=training.workers,
            samples=samples,
            columns=columns,
            batch=training.batch,
            precision=training.precision,
            vanilla=training.vanilla,
        )
        if boards:
            boards.check_fits(shape)
    except DoesNotFit as error:
        raise InputError(f"{training.data}: {error}") from error


def place(training: GlmTraining, dataset: data.Dataset, boards: Boards | None = None) -> Placed:
    """Return layout and features of the training samples on the nodes. Raises InputError if they do not fit."""
    sparse_boards = boards is not None and boards.config.sparse
    try:
        layout, features = choose_layout(
            dataset.features,
            node=training.node,
            workers=training.workers,
            batch=training.batch,
            precision=training.precision,
            vanilla=training.vanilla,
            choice=training.sparse,
            rule=training.order,
            is_csr=dataset.is_csr,
            obstacle="the boards have dense nodes" if boards and not sparse_boards else "",
            required="since the boards have sparse nodes" if sparse_boards else "",
        )
        if boards and layout.totals is not None and layout.is_sparse:
            boards.check_lists_fit(layout.shape, layout.totals)
        return layout, features
    except DoesNotFit as error:
        raise InputError(f"{training.data}: {error}") from error


def trainers(
    training: GlmTraining,
    *,
    boards: Boards | None = None,
    wave: Waveform | None = None,
    quiet: bool = False,
    loaded: Callable[[GlmTraining, data.Dataset], None] | None = None,
) -> list[Trainer]:
    """Load the data, and build the simulator unless there are ``boards``; return the runs, ready to start.

    The simulator writes ``wave``. ``loaded`` is called before the simulator is built, with the training, its
    default learning rate resolved, and the data. With more than two classes, there is one run per class in
    order, each against the rest, on the same nodes. Raises InputError.
    """
    check_precision(training.precision)  # quantising comes before ``TrainShape``
    dataset = data.load(
        training.data,
        training.loss,
        target=training.target,
        precision=training.precision,
        bias=training.bias,
        shuffle=training.shuffle,
        test=training.test,
        seed=training.seed,
        check=partial(check_shape, training, boards),
    )
    if training.lr is None:
        training = replace(training, lr=default_rate(dataset.features, training.precision, training.loss))
    if loaded:
        loaded(training, dataset)
    check_switch(training.network.switch)
    placed = place(training, dataset, boards)
    training = replace(training, node=placed[0].shape.node)

    @cache
    def nodes() -> Cosim | Boards:
        return boards or Cosim(
            training.node,
            workers=training.workers,
            here=training.network.here,
            clock_mhz=training.clock_mhz,
            hbm=training.hbm,
            wave=wave,
            quiet=quiet,
        )

    if not dataset.classes or len(dataset.classes) == 2:
        return [Trainer(training, dataset, placed, nodes)]
    if training.network.ports:
        raise InputError(
            f"{training.data}: {len(dataset.classes)} classes need a training each; the switch at --ports has "
            "one job"
        )
    return [
        Trainer(training, dataset.against_the_rest(index), placed, nodes, against_the_rest=label)
        for index, label in enumerate(dataset.classes)
    ]
