"""``fanin.train``: training of a generalised linear model through the RTL of several nodes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.api.folder import Folder, PathLike, install_advice, run_in_folder
from fanin.api.samples import Samples, has_samples, write_samples
from fanin.api.signature import with_options
from fanin.base.errors import InputError
from fanin.glm.golden.model import GlmModel
from fanin.glm.run.options import GlmOptions
from fanin.runs.output import MODEL_FILE, RUN_FILE, class_folders

if TYPE_CHECKING:  # not needed by every function
    from fanin.sim.glm.classes import ClassesResult
    from fanin.sim.glm.result import TrainResult


class TrainRun(Folder):
    """A training, and the folder that ``fanin train`` writes."""

    mark = RUN_FILE
    result: TrainResult | ClassesResult | None = None  #: epochs, model, times and counters of each worker
    #: For a class: the whole training. The reference keeps its folder, perhaps a temporary one, alive.
    _parent: TrainRun | None = None

    @property
    def bit_exact(self) -> bool:
        """True if every epoch's model equals the golden model."""
        return bool(self.values["bit_exact"])

    @property
    def classes(self) -> list[TrainRun]:
        """Trainings of each class against the rest, in order of classes; empty for two classes."""
        folders = class_folders(self.folder)
        runs = [TrainRun(part, f"class {part.name} against the rest") for part in folders]
        results = getattr(self.result, "results", [None] * len(runs))
        for run, result in zip(runs, results, strict=True):
            run._parent, run.result = self, result
        return runs

    @property
    def losses(self) -> list[float]:
        """Mean training loss after each epoch. With more than two classes, see ``classes``."""
        return [epoch["loss"] for epoch in self.values["epochs"]]

    @property
    def float64_losses(self) -> list[float]:
        """Mean training loss after each epoch of the same training in float64."""
        return list(self.values["float64_loss"])

    @property
    def test_accuracy(self) -> float | None:
        """Share of held-out samples that are predicted correctly; None without any, and for targets."""
        accuracy: float | None = self.values.get("test_accuracy")
        return accuracy

    @property
    def test_r2(self) -> float | None:
        """R² of the linear loss on held-out samples; None without any, and for classes."""
        r2: float | None = self.values.get("test_r2")
        return r2

    @property
    def test_rms_error(self) -> float | None:
        """RMS error of the linear loss on held-out samples, in the targets' unit; None as for ``test_r2``."""
        error: float | None = self.values.get("test_rms_error")
        return error

    @cached_property
    def model(self) -> GlmModel:
        """Model with its weights, scaling, classes and number format."""
        return GlmModel.load(self.folder / MODEL_FILE)


@with_options(GlmOptions, annotations={"data": "PathLike | Samples | None"})
def train(data: PathLike | Samples | None = None, labels: Samples | None = None, **options: Any) -> TrainRun:
    """Train on the emitted Verilog of several nodes, simulated or boards, through the emitted switch program.

    Options are those of ``fanin train``; without ``output`` the run's folder is a temporary one. Raises
    InputError for bad arguments, CheckFailed if a node stopped or the model differs from the golden model.

    ``data`` may also be an array, a sparse matrix or a DataFrame, with ``labels``; a DataFrame may have the
    labels in a column instead. These samples are written beside the run's folder, so that the run can be
    repeated.

    Source: P4SGD; docs/systems/glm.md.
    """
    with install_advice():
        from fanin.glm.run.execute import execute

    if not has_samples(data):
        if labels is not None:
            raise InputError("labels: a file has its own labels")
        return run_in_folder(TrainRun, ("train",), GlmOptions, {"data": data, **options}, execute)

    def prepare(output: Path) -> dict[str, Any]:
        return {"data": write_samples(data, labels, output)}

    return run_in_folder(TrainRun, ("train",), GlmOptions, options, execute, prepare)
