"""Shared state of the parts of ``fanin bench codec-training``: trainings, seeds, and the page of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from fanin.evaluation.bench.page import table
from fanin.sim.codec.trainers import Training

HDC, TEMPLATES = (
    "hdc",
    "templates",
)  # of fanin.sim.codec.tasks.TASKS: the paper's own, and the one for truncation


@dataclass
class Bench:
    """Trainings to measure, and the page of tables with their results."""

    trainings: dict[str, Training]
    seeds: int
    folder: Path
    bar: tqdm
    tables: list[str] = field(default_factory=list)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Add a table to the page, unless it has no rows."""
        self.tables += table(title, columns, rows)

    def ran(self) -> None:
        """Count a training."""
        self.bar.update()
