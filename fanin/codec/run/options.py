"""Options of a codec, and the configuration that they select."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass, fields
from typing import Any

from fanin.base.errors import InputError
from fanin.codec.facts import (
    BLOCKS,
    CONFIGS,
    ENUMERATIONS,
    GROUPS,
    MAX_BOUND,
    MAX_EXPONENT,
    MAX_MANTISSA,
    MAX_OFFSET,
    MIN_BOUND,
    MIN_EXPONENT,
    MIN_MANTISSA,
    MX_BLOCKS,
    OWNERS,
    Bfp,
    Codec,
    CodecConfig,
    Inceptionn,
    Mx,
    member_names,
    parse_member,
)
from fanin.runs.option import Group, Options, option

CODECS = tuple(kind.value for kind in CONFIGS)
MODES = member_names("mode")
CODEC = Group("codec")
PARAMETERS = tuple(OWNERS)  #: names of the parameters of all codecs


def bound_text(bound: int) -> str:
    """Return a bound in the form of ``--bound``."""
    return f"2^-{bound}"


def _join_numbers(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"


@dataclass(frozen=True, kw_only=True)
class CodecOptions(Options):
    """Parameters of every codec; None for a parameter that is not given, which selects the codec's default."""

    bound: str | None = option(
        CODEC, None, "INCEPTIONN's error bound", "2^-B", default_text=bound_text(Inceptionn.bound)
    )
    mode: str | None = option(
        CODEC, None, "INCEPTIONN's mode", choices=MODES, default_text=Inceptionn.mode.name.lower()
    )
    group: int | None = option(
        CODEC,
        None,
        "values of an INCEPTIONN group",
        choices=GROUPS,
        default_text=str(Inceptionn.group),
    )
    block: int | None = option(
        CODEC,
        None,
        f"values of a block: {_join_numbers(BLOCKS)} of BFP, {_join_numbers(MX_BLOCKS)} of MX",
        "N",
        default_text=f"BFP: {Bfp.block}, MX: {Mx.block}",
    )
    mantissa: int | None = option(
        CODEC,
        None,
        f"bits of a BFP magnitude, {MIN_MANTISSA} to {MAX_MANTISSA}",
        "M",
        default_text=str(Bfp.mantissa),
    )
    exponent: int | None = option(
        CODEC,
        None,
        f"bits of a BFP block's exponent, {MIN_EXPONENT} to {MAX_EXPONENT}",
        "E",
        default_text=str(Bfp.exponent),
    )
    offset: int | None = option(
        CODEC,
        None,
        f"powers of two by which an exponent of less than {MAX_EXPONENT} bits is lowered, 0 to {MAX_OFFSET}",
        "O",
        default_text=str(Bfp.offset),
    )
    element: str | None = option(
        CODEC, None, "format of MX's elements", choices=member_names("element"), default_text=str(Mx.element)
    )
    rounding: str | None = option(
        CODEC,
        None,
        "rounding of MX, BF16 and FP16",
        choices=member_names("rounding"),
        default_text=Mx.rounding.name.lower(),
    )


Values = argparse.Namespace | CodecOptions


def parse_bound(text: str) -> int:
    """Parse a bound, ``2^-B`` or a number that is such a power; return B. Raises InputError."""
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


def parameters_of(codec: str | None, values: Values) -> dict[str, Any]:
    """Return the parameters that are not None by name. Raises InputError for a parameter of another codec."""
    parameters = {name: getattr(values, name) for name in PARAMETERS if getattr(values, name) is not None}
    for name in parameters:
        if codec not in (None, *OWNERS[name]):
            raise InputError(f"--{name} is a parameter of {' and '.join(OWNERS[name])}, not of {codec}")
    if "bound" in parameters:
        parameters["bound"] = parse_bound(parameters["bound"])
    for name in parameters.keys() & ENUMERATIONS:
        parameters[name] = parse_member(name, parameters[name])
    return parameters


def configuration(codec: str, values: Values, *, group: int | None = None) -> CodecConfig:
    """Return a codec with its parameters. Raises InputError for a parameter out of range.

    ``group``: values per INCEPTIONN group if ``--group`` is not given; None: the codec's default.
    """
    parameters = parameters_of(codec, values)
    if codec == Codec.INCEPTIONN and group is not None:
        parameters.setdefault("group", group)
    try:
        return CONFIGS[Codec(codec)](**parameters)
    except ValueError as error:
        raise InputError(str(error)) from error


def optional_configuration(codec: str | None, values: Values, *, group: int | None) -> CodecConfig | None:
    """Like ``configuration``, but return None without a codec. Raises InputError for parameters without one."""
    if codec not in (None, Codec.NONE):
        return configuration(codec, values, group=group)
    if unused := [name for name in PARAMETERS if getattr(values, name) is not None]:
        raise InputError(f"--{unused[0]}: needs a --codec")
    return None


def as_options(config: CodecConfig) -> dict[str, str | int]:
    """Return the parameters of a codec by name, in the form of options."""
    options = {field.name: getattr(config, field.name) for field in fields(config)}
    options |= {name: options[name].name.lower() for name in options.keys() & ENUMERATIONS}
    if isinstance(config, Inceptionn):
        options["bound"] = bound_text(config.bound)
    return options
