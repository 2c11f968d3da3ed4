"""Who looks at ``fanin train`` while it goes on: the terminal's bar, and the live file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fanin.glm.golden.model import Label
from fanin.runs.live import TRAINING, LiveFile
from fanin.runs.progress import EpochBar
from fanin.sim.cosim.run import Progress
from fanin.sim.glm.train import Trainer

GOLDEN = "golden model"


def label_text(label: Label) -> str:
    """A class, in words."""
    return f"{label:g}" if isinstance(label, float) else label


class Following:
    """Follows the runs of a command, one after the other: one, or one for each class.

    Losses are those of the golden model, which it trains beside the simulator up to the epoch that the nodes
    are behind; the nodes' own models are known, and compared with it, when they have ended.
    """

    def __init__(self, live: LiveFile, runs: Sequence[Trainer]):
        self._live, self._runs = live, runs
        self._begun, self._before = 0, 0  # runs, and AllReduces of those that have ended
        self._run: Trainer | None = None
        self._shown = 0  # epochs of the run whose losses have been told
        self._what = ""
        live.expect(sum(run.operations for run in runs))

    @contextlib.contextmanager
    def training(self, run: Trainer, done: int = 0) -> Iterator[Callable[[Progress], None]]:
        """A run trains, after so many epochs that are done; yields what is to be called with its progress."""
        self.begin(run)
        label = run.against_the_rest
        series = GOLDEN if label is None else f"class {label_text(label)}"
        self._what = "" if label is None else f"{series}, {self._begun} of {len(self._runs)}: "
        epochs = run.options.epochs
        before = done * run.operations_each
        self._live.stage(self._what + TRAINING)

        def progress(now: Progress) -> None:
            now = replace(now, operations=before + now.operations)
            bar.update(now)
            ended = min(now.operations // run.operations_each, epochs)
            for number, reference in enumerate(run.golden(ended)[self._shown :], start=self._shown + 1):
                self._live.losses(series, number, reference.loss)
                self._shown = number
            self._live.advance(
                self._before + now.operations,
                epoch=f"{min(ended + 1, epochs)}/{epochs}",
                cycles=now.cycle,
                frames=now.frames,
            )

        with EpochBar(epochs=epochs, operations=run.operations) as bar:
            yield progress

    def begin(self, run: Trainer) -> None:
        """Note that a run begins; where it begins again, nothing changes."""
        if run is self._run:
            return
        if self._run:
            self._before += self._run.operations
        self._run, self._shown = run, 0
        self._begun += 1

    def comparing(self) -> None:
        """The nodes have ended, and their models are compared."""
        self._live.stage(f"{self._what}comparing with the golden model")
