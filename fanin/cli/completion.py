"""``fanin completion``: a shell's completion of commands, options and files."""

from __future__ import annotations

import argparse
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = (
    "Print a script that completes fanin's commands, options and their values. For bash, put "
    'eval "$(fanin completion bash)" into ~/.bashrc. For zsh, save the output as _fanin in a folder of fpath.'
)


def add_parser(commands: argparse._SubParsersAction[Any], fanin_parser: argparse.ArgumentParser) -> None:
    """Declare the command; ``fanin_parser`` parses all commands."""
    completion = commands.add_parser(
        "completion", help="print a completion script for a shell", description=DESCRIPTION
    )
    completion.add_argument("shell", choices=SHELLS, help="name of the shell")

    def run(args: argparse.Namespace) -> int:
        import shtab  # needed here alone

        print(shtab.complete(fanin_parser, shell=args.shell))
        return 0

    completion.set_defaults(run=run)
