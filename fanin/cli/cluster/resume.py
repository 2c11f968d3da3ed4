"""``fanin cluster resume``: continue a stopped run from its last state."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.cli.cache import add_no_cache
from fanin.runs.output import add_json
from fanin.runs.ranks import add_ranks


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "resume",
        help="continue a stopped run",
        description="Continue a run in its folder from its last whole state. The result has the bits of a run "
        "that was never stopped. With --plan the run continues on another cluster.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="the folder of fanin cluster run")
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="OTHER",
        help="another plan of the same network, or a folder of fanin cluster build, to continue on",
    )
    add_ranks(parser)
    add_json(parser)
    add_no_cache(parser, "for a run in RTL, ")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train the remaining epochs, and complete the run's folder."""
    from fanin.cnn.run.resume import execute

    return execute(args)
