"""Progress of ``fanin train``: the terminal's bar, and the live file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fanin.glm.golden.model import Label
from fanin.runs.live import TRAINING, LiveFile
from fanin.runs.progress import EpochBar
from fanin.sim.cosim.run import Progress
from fanin.sim.glm.course import Course, TrainRun
from fanin.sim.glm.train import Trainer

GOLDEN = "golden model"


def label_text(label: Label) -> str:
    """Return a class label as text."""
    return f"{label:g}" if isinstance(label, float) else label


class ProgressReporter:
    """Reports the progress of a command's runs, one after the other: one run, or one per class.

    The losses shown are those of the golden model. It is trained here, beside the simulator, up to the last
    epoch that the nodes have finished. The nodes' own models are compared with it only at the end.
    """

    def __init__(self, live: LiveFile, runs: Sequence[Trainer]):
        self._live, self._runs = live, runs
        self._runs_begun, self._operations_before = 0, 0  # AllReduces of finished runs
        self._run: Trainer | None = None
        self._epochs_reported = 0  # epochs of the current run whose losses are reported
        self._prefix = ""  # names the class in the stage's text; empty for a single run
        live.expect(sum(run.operations for run in runs))

    @contextlib.contextmanager
    def training(self, run: Trainer, done: int = 0) -> Iterator[Callable[[Progress], None]]:
        """Start reporting a run with ``done`` finished epochs; yield the callback for its progress."""
        self.begin(run)
        label = run.against_the_rest
        series = GOLDEN if label is None else f"class {label_text(label)}"
        self._prefix = "" if label is None else f"{series}, {self._runs_begun} of {len(self._runs)}: "
        epochs = run.training.epochs
        finished_operations = done * run.operations_each
        self._live.stage(self._prefix + TRAINING)

        def progress(state: Progress) -> None:
            state = replace(state, operations=finished_operations + state.operations)
            bar.update(state)
            finished_epochs = min(state.operations // run.operations_each, epochs)
            for number in range(self._epochs_reported + 1, finished_epochs + 1):
                self._live.losses(series, number, run.golden(number)[-1].loss)
                self._epochs_reported = number
            self._live.advance(
                self._operations_before + state.operations,
                epoch=f"{min(finished_epochs + 1, epochs)}/{epochs}",
                cycles=state.cycle,
                frames=state.frames,
            )

        with EpochBar(epochs=epochs, operations=run.operations) as bar:
            yield progress

    def begin(self, run: Trainer) -> None:
        """Note that a run starts; a restart of the same run changes nothing."""
        if run is self._run:
            return
        if self._run:
            self._operations_before += self._run.operations
        self._run, self._epochs_reported = run, 0
        self._runs_begun += 1

    def comparison(self) -> None:
        """Report that the nodes have finished and their models are being compared."""
        self._live.stage(f"{self._prefix}comparing with the golden model")


def simulate(
    trainer: Trainer, course: Course, pcap: Path, reporter: ProgressReporter, *, elapsed: float = 0.0
) -> TrainRun:
    """Train a run on the nodes, with progress; write its frames to ``pcap``. Raises SimulationFailed.

    - ``elapsed``: simulated seconds of failed attempts before this one, 0 for the first. The times of
      ``--stop`` count from the start of the first attempt. Workers that stopped in an earlier attempt are
      replaced, so their stops are left out.
    """
    stops = ((worker, time - elapsed) for worker, time in trainer.training.network.stops if time >= elapsed)
    with reporter.training(trainer, course.first) as progress:
        return trainer.simulate(course=course, stops=tuple(stops), pcap=pcap, progress=progress)
