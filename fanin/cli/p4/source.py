"""Options of commands that read a P4 program: folders of ``#include``, and macros."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fanin.sim.switch.embedded import Program


def add_source(part: argparse.ArgumentParser) -> None:
    """Declare ``-I`` and ``-D``."""
    part.add_argument(
        "-I", dest="include", type=Path, action="append", default=[], metavar="DIR", help="for #include"
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
    """The program of ``args.program``, read with the options of ``add_source``. Raises P4Error."""
    from fanin.sim.switch.embedded import load

    return load(args.program, include_dirs=args.include, defines=dict(args.defines), permissive=permissive)
