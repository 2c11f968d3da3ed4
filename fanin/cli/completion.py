"""``fanin completion``: a shell's completion of commands, options and files."""

from __future__ import annotations

import argparse
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = (
    "Print a script that completes fanin's commands, options and their values. bash: eval "
    '"$(fanin completion bash)", in ~/.bashrc for good; zsh: the output is a file _fanin in a folder of fpath.'
)


def add_parser(commands: argparse._SubParsersAction[Any], whole: argparse.ArgumentParser) -> None:
    """Declare the command; ``whole`` parses all commands."""
    completion = commands.add_parser("completion", help="completion for a shell", description=DESCRIPTION)
    completion.add_argument("shell", choices=SHELLS, help="which shell")

    def run(args: argparse.Namespace) -> int:
        import shtab  # needed here alone

        print(shtab.complete(whole, shell=args.shell))
        return 0

    completion.set_defaults(run=run)
