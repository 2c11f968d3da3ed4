"""What the process-group backend computes with: ``FANIN_BACKEND``, or what ``init_process_group`` is given."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from fanin.codec import CONFIGS, Codec, CodecConfig, Inceptionn, Mode
from fanin.errors import InputError
from fanin.ring import PRESETS, RingConfig
from fanin.sim.network import LinkConfig

VARIABLE = "FANIN_BACKEND"


class Run(StrEnum):
    """Who adds up: the golden model, in the ranks themselves, or nodes in RTL, in a co-simulation."""

    GOLDEN = "golden"
    RTL = "rtl"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The hardware that a process group stands for, and how it is carried out.

    ``preset`` names the ring node's sizes, ``codec`` what is on its links, ``gbps`` their rate. ``run`` may be
    given as text. Raises ValueError that names parameter, value and limit.
    """

    run: Run = Run.GOLDEN
    preset: str = "u280"
    codec: CodecConfig | None = None
    gbps: float = LinkConfig.gbps

    def __post_init__(self) -> None:
        if self.run not in list(Run):
            raise ValueError(f"run must be one of {', '.join(Run)}, not {self.run!r}")
        object.__setattr__(self, "run", Run(self.run))
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if isinstance(self.codec, Inceptionn):  # a word is a group
            object.__setattr__(self, "codec", replace(self.codec, group=PRESETS[self.preset].lanes))
        _ = self.ring, self.link  # each checks its own

    @property
    def ring(self) -> RingConfig:
        """The nodes."""
        return replace(PRESETS[self.preset], codec=self.codec)

    @property
    def link(self) -> LinkConfig:
        """Their links."""
        return LinkConfig(gbps=self.gbps)

    def __str__(self) -> str:
        codec = "no codec" if self.codec is None else str(self.codec)
        return f"ring NICs {self.preset}, {codec}, {self.gbps:g} Gb/s, {self.run}"

    @classmethod
    def parse(cls, text: str) -> Options:
        """Options from text as in ``rtl,codec=bfp,mantissa=5,gbps=40``: who adds up, then others in any order.

        Raises InputError for what is unknown, said twice or out of range.
        """
        given: dict[str, str] = {}
        for place, word in enumerate(text.split(",")):
            name, equals, value = (part.strip() for part in word.partition("="))
            name, value = (name, value) if equals or place else ("run", name)
            if name not in _NAMES or not value:
                raise InputError(f"{word.strip()!r} is no option; it is {' or '.join(Run)}, then {_FORM}")
            if name in given:
                raise InputError(f"{name} is given twice")
            given[name] = value
        try:
            codec = _codec(given)
            rate = float(given.pop("gbps", cls.gbps))
            return cls(codec=codec, gbps=rate, **given)  # type: ignore[arg-type]
        except ValueError as error:
            raise InputError(str(error)) from error

    @classmethod
    def of(cls, options: Any) -> Options:
        """``pg_options`` where they are given; else what ``FANIN_BACKEND`` says; else the defaults.

        Raises InputError.
        """
        if isinstance(options, cls):
            return options
        if options is not None:
            raise InputError(f"pg_options must be fanin.torch.Options, not {type(options).__name__}")
        text = os.environ.get(VARIABLE, "")
        try:
            return cls.parse(text) if text else cls()
        except InputError as error:
            raise InputError(f"{VARIABLE}={text}: {error}") from error


_PARAMETERS = {name: kind for kind, codec in CONFIGS.items() for name in (f.name for f in fields(codec))}
del _PARAMETERS["group"]  # a preset's lanes
_NAMES = {field.name for field in fields(Options)} | set(_PARAMETERS)
_FORM = ", ".join(f"{name}=…" for name in sorted(_NAMES - {"run"}))


def _codec(given: dict[str, str]) -> CodecConfig | None:
    """The codec, whose options are taken out. Raises ValueError."""
    name = given.pop("codec", Codec.NONE.value)
    if name not in list(Codec):
        raise ValueError(f"codec must be one of {', '.join(Codec)}, not {name!r}")
    parameters = {key: given.pop(key) for key in _PARAMETERS if key in given}
    for key in parameters:
        if _PARAMETERS[key] != name:
            raise ValueError(f"{key} is a parameter of {_PARAMETERS[key]}, not of {name}")
    if name == Codec.NONE:
        return None
    return CONFIGS[Codec(name)](**{key: _parameter(key, value) for key, value in parameters.items()})


def _parameter(name: str, value: str) -> int:
    if name == "mode":
        modes = {mode.name.lower(): mode for mode in Mode}
        if value not in modes:
            raise ValueError(f"mode must be one of {', '.join(modes)}, not {value!r}")
        return modes[value]
    match = re.fullmatch(r"2\^-(\d+)" if name == "bound" else r"(\d+)", value)
    if not match:
        form = "a power of two as 2^-10" if name == "bound" else "a whole number"
        raise ValueError(f"{name} must be {form}, not {value!r}")
    return int(match[1])
