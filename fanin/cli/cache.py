"""The option ``--no-cache`` of the commands that emit or build."""

from __future__ import annotations

import argparse


def add_no_cache(parser: argparse.ArgumentParser, condition: str = "") -> None:
    """Declare the option, which ``main`` obeys for every command that has it."""
    parser.add_argument(
        "--no-cache", action="store_true", help=f"{condition}emit and build anew, without the cache"
    )
