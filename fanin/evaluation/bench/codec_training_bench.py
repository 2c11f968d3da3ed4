"""State shared by the figures of ``fanin bench codec-training``: trainings, seeds, and the page of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from fanin.evaluation.bench.page import table
from fanin.sim.codec.trainers import Training

#: Tasks of fanin.sim.codec.tasks.TASKS: the paper's digit classifier, and the task that truncation hurts.
HDC, TEMPLATES = "hdc", "templates"


@dataclass
class Bench:
    """Trainings to measure, and the page of tables with their results.

    - ``trainings``: trainings by name of the network.
    - ``seeds``: trainings of each kind, with seeds from 0.
    - ``folder``: output folder.
    - ``bar``: progress bar that counts trainings.
    - ``tables``: lines of the page.
    """

    trainings: dict[str, Training]
    seeds: int
    folder: Path
    bar: tqdm
    tables: list[str] = field(default_factory=list)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Add a table to the page, unless it has no rows."""
        self.tables += table(title, columns, rows)

    def count_training(self) -> None:
        """Advance the progress bar by a training."""
        self.bar.update()
