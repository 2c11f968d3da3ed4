"""Options that say which codec, and the checks of what they are given."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import fields

from fanin.codec import (
    BLOCKS,
    CONFIGS,
    GROUPS,
    MAX_BOUND,
    MAX_EXPONENT,
    MAX_MANTISSA,
    MAX_OFFSET,
    MIN_BOUND,
    MIN_EXPONENT,
    MIN_MANTISSA,
    Bfp,
    Codec,
    CodecConfig,
    Inceptionn,
    Mode,
)
from fanin.errors import InputError

CODECS = tuple(kind.value for kind in CONFIGS)
MODES = tuple(mode.name.lower() for mode in Mode)
_OWNERS = {field.name: kind for kind, config in CONFIGS.items() for field in fields(config)}
PARAMETERS = tuple(_OWNERS)  #: of all codecs


def add_codec(parser: argparse._ActionsContainer, *, required: bool = False, none: bool = False) -> None:
    """Declare ``--codec`` and every codec's parameters; what is not given is None.

    With ``none`` it may be none, and is by default.
    """
    default = Inceptionn()
    choices = (Codec.NONE.value, *CODECS) if none else CODECS
    help = f"which codec (default: {Codec.NONE})" if none else "which codec"
    parser.add_argument("--codec", choices=choices, required=required, help=help)
    add_bound(parser, help=f"error bound (default: 2^-{default.bound})")
    parser.add_argument("--mode", choices=MODES, help=f"INCEPTIONN's (default: {default.mode.name.lower()})")
    add_group(parser)
    add_bfp(parser)


def add_group(parser: argparse._ActionsContainer) -> None:
    """Declare ``--group``."""
    text = f"values of a group of INCEPTIONN's (default: {Inceptionn().group})"
    parser.add_argument("--group", type=int, choices=GROUPS, help=text)


def add_bfp(parser: argparse._ActionsContainer) -> None:
    """Declare ``--block``, ``--mantissa``, ``--exponent`` and ``--offset``."""
    default, limits = Bfp(), f"{MIN_MANTISSA} to {MAX_MANTISSA}"
    text = f"values of a BFP block, {_list(BLOCKS)} (default: {default.block})"
    parser.add_argument("--block", type=int, metavar="N", help=text)
    text = f"bits of a BFP magnitude, {limits} (default: {default.mantissa})"
    parser.add_argument("--mantissa", type=int, metavar="M", help=text)
    text = f"bits of a BFP block's exponent, {MIN_EXPONENT} to {MAX_EXPONENT} (default: {default.exponent})"
    parser.add_argument("--exponent", type=int, metavar="E", help=text)
    text = f"powers of two by which an exponent of less than {MAX_EXPONENT} bits counts lower, "
    text += f"0 to {MAX_OFFSET} (default: {default.offset})"
    parser.add_argument("--offset", type=int, metavar="O", help=text)


def add_bound(parser: argparse._ActionsContainer, *, help: str, repeatable: bool = False) -> None:
    """Declare ``--bound``: text until ``parse_bound`` has read it."""
    parser.add_argument(
        "--bound", metavar="2^-B", action="append" if repeatable else "store", help=f"INCEPTIONN's {help}"
    )


def _list(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"


def parse_bound(text: str) -> int:
    """The exponent B of a bound 2^-B, written so or as a number that is such a power. Raises InputError."""
    if match := re.fullmatch(r"2\^-(\d{1,4})", text):
        bound = int(match[1])
    else:
        try:
            fraction, exponent = math.frexp(float(text))
        except ValueError:
            fraction, exponent = 0.0, 0
        bound = 1 - exponent if fraction == 0.5 else 0
    if not MIN_BOUND <= bound <= MAX_BOUND:
        raise InputError(f"--bound {text}: must be a power of two, 2^-{MAX_BOUND} to 2^-{MIN_BOUND}")
    return bound


def given(args: argparse.Namespace) -> dict[str, object]:
    """The codec's parameters among the options given, by name. Raises InputError for one of the other codec."""
    found = {}
    for name, owner in _OWNERS.items():
        value = getattr(args, name)
        if value is None:
            continue
        if args.codec not in (None, owner):
            raise InputError(f"--{name} is a parameter of {owner}, not of {args.codec}")
        found[name] = value
    if "bound" in found:
        found["bound"] = parse_bound(args.bound)
    if "mode" in found:
        found["mode"] = Mode[args.mode.upper()]
    return found


def configuration(args: argparse.Namespace) -> CodecConfig:
    """The codec that ``--codec`` and its parameters name. Raises InputError for one out of range."""
    try:
        return CONFIGS[Codec(args.codec)](**given(args))  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(str(error)) from error


def as_options(config: CodecConfig) -> dict[str, str | int]:
    """The parameters of a codec by name, as they are written as options."""
    found = {field.name: getattr(config, field.name) for field in fields(config)}
    if isinstance(config, Inceptionn):
        found |= {"bound": f"2^-{config.bound}", "mode": config.mode.name.lower()}
    return found
