"""Options of a codec, for commands that have no table of their own."""

from __future__ import annotations

import argparse

from fanin.cli.options import add_selected_options
from fanin.codec.facts import Codec
from fanin.codec.run.options import CODECS, PARAMETERS, CodecOptions


def add_codec(parser: argparse._ActionsContainer, *, required: bool = False, allow_none: bool = False) -> None:
    """Declare ``--codec`` and every codec's parameters, with None as their default.

    - ``required``: True if the command needs ``--codec``.
    - ``allow_none``: True if ``--codec none`` is possible, and the default.
    """
    choices = (Codec.NONE.value, *CODECS) if allow_none else CODECS
    help = f"codec of the values (default: {Codec.NONE})" if allow_none else "codec of the values"
    parser.add_argument("--codec", choices=choices, required=required, help=help)
    add_selected_options(parser, CodecOptions, PARAMETERS)
