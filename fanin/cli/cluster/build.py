"""``fanin cluster build``: from a plan to the hardware of its devices."""

from __future__ import annotations

import argparse

from fanin.cli.cache import add_no_cache
from fanin.cli.options import add_options
from fanin.cnn.run.options import BuildOptions
from fanin.runs.call import Call
from fanin.runs.output import add_json


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "build",
        help="build the hardware of a plan",
        description="Build what a plan places on devices: nodes whose layers train. Their simulator is kept "
        "for fanin cluster run.",
    )
    add_options(parser, BuildOptions)
    add_json(parser)
    add_no_cache(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Build, and write the folder."""
    from fanin.cnn.run.build import execute

    execute(BuildOptions.of(args), Call.of(args))
    return 0
