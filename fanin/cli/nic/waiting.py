"""Option ``--wait``: maximum time that a command waits for other nodes, in seconds."""

from __future__ import annotations

import argparse

from fanin.base.errors import InputError

_MAX_SECONDS = 86_400


def add_wait(part: argparse._ActionsContainer, default: float, meaning: str) -> None:
    """Declare ``--wait``."""
    part.add_argument("--wait", type=float, default=default, metavar="S", help=meaning)


def check_wait(args: argparse.Namespace) -> None:
    """Raise InputError for ``--wait`` outside 1 s to one day."""
    if not 1 <= args.wait <= _MAX_SECONDS:
        raise InputError(f"--wait {args.wait:g}: must be 1 to {_MAX_SECONDS} seconds")
