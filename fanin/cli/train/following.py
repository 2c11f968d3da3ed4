"""Who looks at ``fanin train`` while it goes on: the terminal's bar, and the live file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from fanin.cli.live import TRAINING, LiveFile
from fanin.cli.progress import EpochBar
from fanin.golden.glm.model import Label
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
        self._what = ""
        live.expect(sum(run.operations for run in runs))

    @contextlib.contextmanager
    def training(self, run: Trainer) -> Iterator[Callable[[Progress], None]]:
        """The next of the runs trains; what is to be called with its progress."""
        self._begun += 1
        label = run.against_the_rest
        series = GOLDEN if label is None else f"class {label_text(label)}"
        self._what = "" if label is None else f"{series}, {self._begun} of {len(self._runs)}: "
        epochs, shown = run.options.epochs, 0
        self._live.stage(self._what + TRAINING)

        def progress(now: Progress) -> None:
            nonlocal shown
            bar.update(now)
            ended = min(now.operations * epochs // run.operations, epochs)
            for number, reference in enumerate(run.golden(ended)[shown:], start=shown + 1):
                self._live.losses(series, number, reference.loss)
                shown = number
            self._live.advance(
                self._before + now.operations,
                epoch=f"{min(ended + 1, epochs)}/{epochs}",
                cycles=now.cycle,
                frames=now.frames,
            )

        with EpochBar(epochs=epochs, operations=run.operations) as bar:
            yield progress
        self._before += run.operations

    def comparing(self) -> None:
        """The nodes have ended, and their models are compared."""
        self._live.stage(f"{self._what}comparing with the golden model")
