"""What ``fanin cluster run`` does with its options: train, compare, write the run's folder, tell."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from fanin.cli.cluster.checkpoint import Checkpoint, save_checkpoint
from fanin.cli.cluster.conditions import check_conditions
from fanin.cli.cluster.loop import Loop
from fanin.cli.cluster.machines import machines_of
from fanin.cli.cluster.metrics import Metrics, metrics_of
from fanin.cli.cluster.runs import BUILD, state_file
from fanin.cli.cluster.setup import Setup, setup_of, training_of
from fanin.cli.cluster.summary import summary
from fanin.cli.output import (
    CLUSTER_RUN,
    REPORT_FILE,
    check_directory,
    output_directory,
    print_json,
    write_file,
)
from fanin.cli.progress import Remaining, StatusLine
from fanin.errors import CheckFailed
from fanin.golden.cnn.state import State
from fanin.report.cnn.page import cnn_page

#: The ``error`` of a run that is under way, or was killed.
UNENDED = "the run has not come to its end"
INTERRUPTED, TERMINATED = "interrupted", "terminated"


def execute(args: argparse.Namespace) -> int:
    """Carry out the command. Raises CheckFailed where the run cannot be ended, or its bits differ.

    The folder of a run that has failed, or was stopped in whatever way, says so, and has the states until then.
    """
    output: Path = args.output
    check_directory(output, CLUSTER_RUN)
    training_of(args)  # said before the plan and the images are read
    check_conditions(args)
    with StatusLine() as status:
        with output_directory(output, CLUSTER_RUN) as folder:
            status.show("building")
            setup = setup_of(args, folder / BUILD)
            status.show("building the simulator")
            kept = Kept(output, setup, status)
            write_metrics(folder, kept.metrics(UNENDED))
        stop = _train(kept)
    metrics = kept.metrics(_cause(stop) if stop else None)
    if metrics["epochs"]:
        write_file(output / REPORT_FILE, cnn_page(metrics))
    write_metrics(output, metrics)
    if args.json:
        print_json(metrics)
    elif not stop:
        print(summary(metrics, output))
    if stop:
        _raise(stop, f"{metrics['error']}; {kept.last}")
    return 0


@dataclass
class Kept:
    """A run and its folder, in which it keeps each state, and then ``run.json`` with it.

    So a run that is killed has all but what it did behind its last state.
    """

    folder: Path
    setup: Setup
    status: StatusLine
    states: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        total = self.setup.training.epochs * len(self.setup.data.train)
        self._left = Remaining(total)
        self.loop = Loop(self.setup, machines_of(self.setup), self._keep, self._progress)

    def metrics(self, error: str | None) -> Metrics:
        """Its ``run.json`` now."""
        return metrics_of(self.setup, self.loop, self.states, error)

    @property
    def last(self) -> str:
        """Its last state, in words."""
        return f"the last state is {self.folder / self.states[-1]}" if self.states else "it has no state"

    def _keep(self, epoch: int, frame: int, states: tuple[State, ...]) -> None:
        name = state_file(epoch, frame)
        save_checkpoint(
            self.folder / name, self.setup.network, Checkpoint(self.setup.about(epoch, frame), states)
        )
        self.states.append(name)
        write_metrics(self.folder, self.metrics(UNENDED))

    def _progress(self, frames: int) -> None:
        epochs = self.setup.training.epochs
        epoch = min(frames // len(self.setup.data.train) + 1, epochs)
        self.status.show(f"epoch {epoch}/{epochs}: {frames:,} frames trained{self._left.after(frames)}")


def write_metrics(folder: Path, metrics: Metrics) -> None:
    """``run.json``, whole or not at all."""
    write_file(folder / CLUSTER_RUN.mark, json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")


def _train(kept: Kept) -> BaseException | None:
    """Train to the end; what has stopped the run before."""
    try:
        kept.loop.run()
    except (CheckFailed, KeyboardInterrupt, SystemExit) as stop:  # SystemExit: SIGTERM
        return stop
    return None


def _cause(stop: BaseException) -> str:
    """The ``error`` of a run."""
    return {KeyboardInterrupt: INTERRUPTED, SystemExit: TERMINATED}.get(type(stop), str(stop))


def _raise(stop: BaseException, message: str) -> NoReturn:
    """Go on with what has stopped the run, with a line for people."""
    if isinstance(stop, SystemExit):
        print(f"fanin: error: {message}", file=sys.stderr)
        raise stop
    raise KeyboardInterrupt(message) if isinstance(stop, KeyboardInterrupt) else CheckFailed(message)
