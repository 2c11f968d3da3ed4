"""Inputs of a training run, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fanin import __version__, fixed
from fanin.base.errors import InputError
from fanin.base.limits import MAX_SEED
from fanin.fixed import Loss
from fanin.glm.facts import MICRO_BATCH, ColumnRule, GlmConfig, SparseChoice, TrainShape
from fanin.glm.golden.metrics import Measure, measure_of
from fanin.glm.golden.model import GlmModel, Label
from fanin.glm.golden.sample_layout import SampleLayout
from fanin.hbm import Hbm
from fanin.hdl.aggregation.job import TIMEOUT_BITS
from fanin.sim.cosim.clock import period_of
from fanin.sim.glm.course import TrainRun
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.operations import times_of

MAX_TIMEOUT = (1 << TIMEOUT_BITS - 1) - 1  # cycles: deadlines are compared modulo 2^32
RISE = 0.1  # share of chance's loss by which mini-batches may raise the loss above the best epoch's


@dataclass(frozen=True, kw_only=True)
class GlmTraining:
    """GLM training: all inputs that determine its outcome, validated."""

    data: str
    target: str | None = None  #: column of a CSV file with the labels; default: the last one
    node: GlmConfig
    network: NetworkConfig
    loss: Loss
    workers: int
    precision: int
    batch: int
    vanilla: bool = False  #: forward and backward of a mini-batch do not overlap
    sparse: SparseChoice = (
        SparseChoice.AUTO
    )  #: requested layout of samples; ``node.sparse`` is the layout in use
    order: ColumnRule = ColumnRule.FREQUENCY  #: rule by which columns share chunks of sparse nodes
    epochs: int
    lr: float | None = None  #: γ; None: ``default_rate`` of the data, once it is loaded
    l2: float = 0.0  #: requested λ; the nearest λ that nodes support is used
    bias: bool
    shuffle: bool
    test: float
    seed: int
    clock_mhz: float
    hbm: Hbm | None = None  #: model of the memory with samples and labels; None: a constant latency

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs must be at least 1, not {self.epochs}")
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"seed must be in 0…{MAX_SEED}, not {self.seed}")
        if self.l2 and not self.node.l2:
            raise InputError(
                f"l2: the weights of the nodes cannot decay, so that l2 must be 0, not {self.l2:g}"
            )
        if self.sparse is SparseChoice.ON and (obstacle := self.node.sparse_obstacle):
            raise InputError(f"--sparse on: sparse nodes cannot have {obstacle}")
        operations = (self.network.slots or self.node.slots) // self.node.protocol.slots_per_operation
        if self.vanilla and self.batch > operations * MICRO_BATCH:
            raise InputError(
                f"vanilla: the slots hold {operations:,} micro-batches of a mini-batch: --batch "
                f"{operations * MICRO_BATCH:,} fits, not {self.batch:,}"
            )
        check_timeout(self.network.ceiling_ns, self.clock_mhz)

    @property
    def gamma(self) -> float:
        """Learning rate γ of a training whose data is loaded."""
        assert self.lr is not None, "the default rate follows from the data"
        return self.lr


def check_timeout(timeout_ns: float, clock_mhz: float) -> None:
    """Raise InputError for a timeout that a node with this clock cannot count."""
    period_of(clock_mhz)  # checks the clock's range first
    longest = MAX_TIMEOUT * 1000 / clock_mhz
    if not 0 < timeout_ns <= longest:
        raise InputError(f"timeout_ns must be in (0, {longest:.6g}] at {clock_mhz:g} MHz, not {timeout_ns:g}")


@dataclass(frozen=True)
class EpochResult:
    """The model's loss and fit at the end of an epoch, on quantised training samples, and the epoch's cycles.

    ``fit`` is the measure that ``measure_of`` names for the loss.
    """

    loss: float
    fit: float
    cycles: int


@dataclass(frozen=True)
class TrainResult:
    """Result of a training run, compared with the golden model.

    - ``golden_loss``, ``float64_loss``, ``float64_fit``: per epoch, on the same samples.
    - ``chance_loss``: loss of a model of zeros on these samples (logistic: ln 2).
    """

    training: GlmTraining
    against_the_rest: Label | None  # with more than two classes, the class of this run
    shape: TrainShape
    decay: fixed.Decay
    epochs: list[EpochResult]
    golden_loss: list[float]
    float64_loss: list[float]
    float64_fit: list[float]
    chance_loss: float
    test_fit: float | None
    model: GlmModel
    bit_exact: bool
    verilog_sha256: str  # for boards: their builds
    run: TrainRun = field(repr=False)
    layout: SampleLayout | None = field(default=None, repr=False)  # None: dense, without a choice
    test_rms_error: float | None = None  # linear loss, in the targets' unit

    @property
    def columns(self) -> int:
        """Columns of the data, including the bias; sparse nodes have more, ``shape.columns``."""
        return self.layout.columns if self.layout else self.shape.columns

    @property
    def layout_text(self) -> str:
        """One line about the layout of the samples; empty if there was nothing to choose."""
        return self.layout.text() if self.layout else ""

    @property
    def measure(self) -> Measure:
        """Kind of the fits: accuracy, or R² for the linear loss."""
        return measure_of(self.training.loss)

    @property
    def l2(self) -> float:
        """λ of the training: the supported value nearest to the requested one."""
        return fixed.l2_of(self.decay.shift, self.training.gamma)

    @property
    def cycles(self) -> int:
        """Cycles of all epochs."""
        return sum(epoch.cycles for epoch in self.epochs)

    @property
    def cycles_ideal(self) -> int:
        """Cycles of all epochs at one word per cycle without any wait; sparse: the busiest engine's items."""
        shape, training = self.shape, self.training
        layout = self.layout or SampleLayout(shape, shape.columns)
        return training.epochs * layout.cycles_ideal(training.network.here)

    def total(self, *counters: str) -> int:
        """Return the sum of counters over all nodes."""
        return sum(node[name] for node in self.run.counters for name in counters)

    @property
    def frames_rejected(self) -> int:
        """Frames that a node or the switch dropped: corrupt, malformed, foreign or stale."""
        raw = self.run.raw
        nodes = self.total(*(name for name in self.run.counters[0] if name.startswith("bad_")), "stale")
        switches = list(raw.switches.values()) or [raw.switch, *raw.jobs.values()]
        dropped = sum(counts.get(name, 0) for counts in switches for name in ("malformed", "foreign", "stale"))
        links = [*(link["up"] for link in raw.links), *raw.trunks.values()]
        return nodes + dropped + sum(link["fcs_errors"] for link in links)

    @property
    def warning(self) -> str:
        """One line that says why the model is unusable; empty if its loss falls."""
        return warning_of([epoch.loss for epoch in self.epochs], self.chance_loss, self.training.gamma)

    def percentile(self, share: float) -> float:
        """Return a percentile of the AllReduce latency, in ns."""
        return float(np.percentile(self.run.allreduce_ns, share))

    def as_json(self) -> dict[str, Any]:
        """Return the result as in ``fanin train --json`` and ``run.json``."""
        raw, fit = self.run.raw, self.measure.key
        return {
            "fanin": __version__,
            "bit_exact": self.bit_exact,
            "against_the_rest": self.against_the_rest,
            "epochs": [{"loss": e.loss, fit: e.fit, "cycles": e.cycles} for e in self.epochs],
            f"test_{fit}": self.test_fit,
            **({} if self.training.loss.classifies else {"test_rms_error": self.test_rms_error}),
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
            f"float64_{fit}": self.float64_fit,
            "chance_loss": self.chance_loss,
            "warning": self.warning or None,
            "options": options_json(self.training),
            **({"layout": self.layout.as_json()} if self.layout and self.layout.reason else {}),
            **observations(self.run),
        }


def warning_of(losses: Sequence[float], chance: float, rate: float) -> str:
    """Return a warning if an epoch's loss exceeds chance, or the last is far above the best; else empty."""
    advice = f"a --lr below {rate:g} may help"
    for epoch, loss in enumerate(losses, start=1):
        if loss > chance:
            return f"the loss of epoch {epoch}, {loss:.4g}, exceeds chance, {chance:.4g}: {advice}"
    best, last = min(losses), losses[-1]
    if last > best + RISE * chance:
        return f"the loss rises, from {best:.4g} after epoch {losses.index(best) + 1} to {last:.4g}: {advice}"
    return ""


def options_json(training: GlmTraining) -> dict[str, Any]:
    """Return the inputs of a training by name, configurations as dictionaries: ``options`` of run.json."""
    network = vars(training.network) | {"link": vars(training.network.link)}
    network.pop("make_switch")
    if (tree := network.pop("tree")) is not None:
        network["tree"] = tree.members
        network["trunks"] = {each.name: each.link for each in tree.switches if each.link}
    hbm = vars(training.hbm) if training.hbm else None
    return vars(training) | {
        "loss": training.loss.key,
        "node": vars(training.node),
        "network": network,
        "hbm": hbm,
    }


def observations(run: TrainRun) -> dict[str, Any]:
    """Return the statistics of nodes, links and switch; of a failed run, those so far."""
    raw = run.raw
    return {
        "counters": run.counters,
        "first_packet": times_of(raw).first_packet,
        "links": raw.links,
        "switch": raw.switch,
        "jobs": raw.jobs,
        **({"switches": raw.switches, "trunks": raw.trunks} if raw.switches else {}),
    }
