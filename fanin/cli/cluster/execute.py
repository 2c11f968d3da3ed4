"""What ``fanin cluster run`` does with its options: train, compare, write the run's folder, tell."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fanin.cli.cluster.checkpoint import Checkpoint, save_checkpoint
from fanin.cli.cluster.loop import Loop
from fanin.cli.cluster.machines import machines_of
from fanin.cli.cluster.metrics import Metrics, metrics_of
from fanin.cli.cluster.runs import BUILD, state_file
from fanin.cli.cluster.setup import Setup, setup_of, training_of
from fanin.cli.cluster.summary import summary
from fanin.cli.output import CLUSTER_RUN, REPORT_FILE, check_directory, output_directory, print_json
from fanin.cli.progress import Remaining, StatusLine
from fanin.errors import CheckFailed
from fanin.golden.cnn.state import State
from fanin.report.cnn.page import cnn_page

INTERRUPTED = "interrupted"


def execute(args: argparse.Namespace) -> int:
    """Carry out the command. Raises CheckFailed where the run cannot be ended, or its bits differ.

    The folder of a run that has failed, or was interrupted, says why, and has the states until then.
    """
    output: Path = args.output
    check_directory(output, CLUSTER_RUN)
    training_of(args)  # said before the plan and the images are read
    with StatusLine() as status, output_directory(output, CLUSTER_RUN) as folder:
        status.show("building")
        setup = setup_of(args, folder / BUILD)
        metrics = _fill(folder, setup, status)
        (folder / CLUSTER_RUN.mark).write_text(json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")
        if metrics["epochs"]:
            (folder / REPORT_FILE).write_text(cnn_page(metrics))
    if args.json:
        print_json(metrics)
    elif not metrics["error"]:
        print(summary(metrics, output))
    if metrics["error"] == INTERRUPTED:
        raise KeyboardInterrupt
    if metrics["error"]:
        raise CheckFailed(f"{metrics['error']}; the last state is {output / metrics['checkpoints'][-1]}")
    return 0


def _fill(folder: Path, setup: Setup, status: StatusLine) -> Metrics:
    """Train, keep states, measure."""
    kept: list[str] = []
    left = Remaining(setup.training.epochs * len(setup.data.train))

    def keep(epoch: int, frame: int, states: tuple[State, ...]) -> None:
        kept.append(state_file(epoch, frame))
        save_checkpoint(folder / kept[-1], setup.network, Checkpoint(setup.about(epoch, frame), states))

    def progress(frames: int) -> None:
        epoch = min(frames // len(setup.data.train) + 1, setup.training.epochs)
        status.show(f"epoch {epoch}/{setup.training.epochs}: {frames:,} frames trained{left.after(frames)}")

    status.show("building the simulator")
    loop, error = Loop(setup, machines_of(setup), keep, progress), None
    try:
        loop.run()
    except CheckFailed as failure:
        error = str(failure)
    except KeyboardInterrupt:
        error = INTERRUPTED
    return metrics_of(setup, loop, kept, error)
