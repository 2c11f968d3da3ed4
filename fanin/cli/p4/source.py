"""Options of commands that read a P4 program: folders of ``#include``, and macros."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.cli.serving import warn

if TYPE_CHECKING:
    from fanin.sim.switch.embedded import Program, Switch


def add_source(part: argparse.ArgumentParser) -> None:
    """Declare the options ``-I`` and ``-D``."""
    part.add_argument(
        "-I", dest="include", type=Path, action="append", default=[], metavar="DIR", help="folder for #include"
    )
    part.add_argument(
        "-D",
        dest="defines",
        type=_define,
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a macro, 1 by default. p4c's are defined: __TARGET_BMV2__, or __TARGET_TOFINO__ if the program "
        "includes tna.p4; -D __TARGET_X__ replaces both",
    )


def _define(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=VALUE")
    return name, value if equals else "1"


def load_program(args: argparse.Namespace, *, permissive: bool = False) -> Program:
    """Load ``args.program`` with the options of ``add_source``, and warn about its meters.

    Raises P4Error.
    """
    from fanin.sim.switch.embedded import load

    program = load(args.program, include_dirs=args.include, defines=dict(args.defines), permissive=permissive)
    if program.meters:
        warn(f"{program.name}: meters have no rates here, every packet is green: {', '.join(program.meters)}")
    return program


def warn_of_clones(switch: Switch) -> None:
    """Print a warning for each clone session without configuration to which clones were sent."""
    for session, count in sorted(switch.lost_clones.items()):
        warn(f"{count} clone{'s' * (count != 1)} lost: clone session {session} is not configured")
