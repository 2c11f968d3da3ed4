"""``fanin.train``: a generalised linear model through the RTL of several nodes."""

from __future__ import annotations

from functools import cached_property

from fanin.api.commands import Folder, PathLike, Repeatable, carried_out
from fanin.cli.output import MODEL_FILE, RUN_FILE, class_folders
from fanin.golden.glm.model import GlmModel


class TrainRun(Folder):
    """A training, and the folder that ``fanin train`` writes."""

    mark = RUN_FILE
    #: Of a class: its training, whose folder, maybe a temporary one, holds that of the class.
    _whole: TrainRun | None = None

    @property
    def bit_exact(self) -> bool:
        """Whether every epoch's model equals the golden model."""
        return bool(self.values["bit_exact"])

    @property
    def classes(self) -> list[TrainRun]:
        """Of more than two classes, the training of each against the rest, in their order."""
        parts = class_folders(self.folder)
        found = [TrainRun(part, f"class {part.name} against the rest") for part in parts]
        for each in found:
            each._whole = self
        return found

    @property
    def losses(self) -> list[float]:
        """The mean training loss behind each epoch. Of more than two classes, see ``classes``."""
        return [epoch["loss"] for epoch in self.values["epochs"]]

    @property
    def float64_losses(self) -> list[float]:
        """The same, of the same training in float64."""
        return list(self.values["float64_loss"])

    @property
    def test_accuracy(self) -> float | None:
        """The share of held-out samples that the model gets right; None without any, and of targets."""
        accuracy: float | None = self.values.get("test_accuracy")
        return accuracy

    @property
    def test_r2(self) -> float | None:
        """R² of the linear loss on held-out samples; None where none are held out, and of classes."""
        r2: float | None = self.values.get("test_r2")
        return r2

    @cached_property
    def model(self) -> GlmModel:
        """Weights, scaling, classes and number format."""
        return GlmModel.load(self.folder / MODEL_FILE)


def train(
    data: PathLike,
    *,
    target: str | None = None,
    loss: str = "logistic",
    epochs: int = 40,
    batch: int = 32,
    lr: float | None = None,
    l2: float = 0.0,
    bias: bool = True,
    shuffle: bool = True,
    test: float = 0.25,
    seed: int = 0,
    mode: str = "model-parallel",
    vanilla: bool = False,
    gradient_values: int = 8,
    workers: int = 4,
    engines: int | None = None,
    preset: str = "demo",
    precision: int = 4,
    frac: int = 24,
    clock_mhz: float = 250.0,
    memory: str = "constant",
    ports_per_channel: int | None = None,
    on: PathLike | None = None,
    ports: str | None = None,
    worker: str | None = None,
    slowdown: float = 1000.0,
    switch: str = "embedded",
    protocol: str = "p4sgd",
    encap: str = "l2",
    slots: int | None = None,
    timeout_ns: float | None = None,
    retries: int = 1000,
    drop: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    corrupt: float = 0.0,
    link_ns: float = 100.0,
    switch_ns: float = 400.0,
    gbps: float = 100.0,
    host_ns: float = 0.0,
    host_jitter_ns: float = 0.0,
    frame_bytes: int = 60,
    stop: Repeatable | None = None,
    checkpoint: int | None = None,
    restart: int | None = None,
    wave: PathLike | None = None,
    wave_nodes: str | None = None,
    wave_from: int | None = None,
    wave_cycles: int | None = None,
    wave_depth: int | None = None,
    output: PathLike | None = None,
    pcap: PathLike | None = None,
    model_out: PathLike | None = None,
) -> TrainRun:
    """Train on the emitted Verilog of several nodes, simulated or boards, through the emitted switch program.

    Arguments are the options of ``fanin train``; without ``output`` its folder is a temporary one. Raises
    InputError for bad arguments, CheckFailed where a node stopped or the model differs from the golden model.

    Source: P4SGD; docs/systems/glm.md.
    """
    return carried_out(TrainRun, ("train",), locals())
