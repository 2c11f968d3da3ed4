"""``fanin campaign run``: carry out the missing runs of a campaign, and write table and page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fanin.runs.output import add_json

DEFAULT_PATIENCE = 600.0  # s without any worker


def add_parser(parts: argparse._SubParsersAction[Any], cli_parser: argparse.ArgumentParser) -> None:
    """Declare the part and its options; ``cli_parser``, fanin's own, checks the command lines of the runs."""
    parser = parts.add_parser(
        "run",
        help="carry out the runs of a file",
        description="Carry out the runs of a file, except those that DIR already has, and write a table "
        "(results.csv, results.parquet) and a page of pictures. Exit status 1 when a run failed.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="TOML: command, options, grid, seeds")
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="DIR", required=True, help="the campaign's folder"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="workers of the local cluster; one per core by default"
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="scheduler of a Dask cluster, tcp://HOST:PORT")
    parser.add_argument("--retry-failed", action="store_true", help="carry out failed runs again")
    parser.add_argument(
        "--patience",
        type=float,
        default=DEFAULT_PATIENCE,
        metavar="SECONDS",
        help="time without a worker until the command ends",
    )
    add_json(parser)
    parser.set_defaults(run=run, whole=cli_parser)


def run(args: argparse.Namespace) -> int:
    """Carry out the runs. Raises CheckFailed if a run failed, InputError before anything is written."""
    from fanin.campaign.execute import execute  # --help must not wait for Dask and PyArrow to load

    return execute(args)
