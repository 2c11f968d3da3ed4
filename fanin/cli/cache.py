"""The option ``--no-cache`` of the commands that emit or build."""

from __future__ import annotations

import argparse


def add_no_cache(parser: argparse.ArgumentParser, condition: str = "") -> None:
    """Declare the option; ``run_on_ranks`` obeys it for every command.

    ``condition``: text before the option's help, such as ``with --rtl, ``.
    """
    parser.add_argument(
        "--no-cache", action="store_true", help=f"{condition}emit and build anew, without the cache"
    )
