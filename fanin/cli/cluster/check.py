"""``fanin cluster check``: a run's checkpoints against the golden model, from each to the next, bit by bit."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.runs.output import add_json


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "check",
        help="compare a run with the golden model",
        description="Train the golden model from each checkpoint of a run to the next, and compare every bit.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="the folder of fanin cluster run")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare the results bit by bit; return 1 if a bit differs."""
    from fanin.cnn.run.check import check

    return check(args.folder, args.json)
