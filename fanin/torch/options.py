"""Configuration of the process-group backend: ``FANIN_BACKEND``, or the argument of ``init_process_group``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.codec.facts import CONFIGS, ENUMERATIONS, OWNERS, Codec, CodecConfig, Inceptionn, parse_member
from fanin.link import LinkConfig
from fanin.p4.aggregation import ProgramConfig
from fanin.ring.facts import MAX_NODES, PRESETS, RingConfig
from fanin.wire.aggregation import MAX_WORKERS

VARIABLE = "FANIN_BACKEND"
SLOTS = 64  #: slots of the switch, the maximum number of operations in flight
VALUES = 32  #: values per packet


class Run(StrEnum):
    """Platform that adds: the golden model, in the ranks themselves, or nodes in RTL, in a co-simulation."""

    GOLDEN = "golden"
    RTL = "rtl"


class Collective(StrEnum):
    """Hardware that adds: ring NICs, or the switch, which adds integers."""

    RING = "ring"
    SWITCH = "switch"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Hardware that a process group models, and the platform that runs it.

    - ``run``: platform; may be given as text.
    - ``collective``: ring or switch; may be given as text.
    - ``preset``: name of the ring node's sizes; the default with a switch.
    - ``codec``: codec on the ring's links; None with a switch.
    - ``gbps``: rate of a link.
    - ``report``: file for the text of ``time()``, written when the group of the whole job ends.

    Raises ValueError that names parameter, value and limit.
    """

    run: Run = Run.GOLDEN
    collective: Collective = Collective.RING
    preset: str = "u280"
    codec: CodecConfig | None = None
    gbps: float = LinkConfig.gbps
    report: str | None = None

    def __post_init__(self) -> None:
        kinds: tuple[tuple[str, type[StrEnum]], ...] = (("run", Run), ("collective", Collective))
        for name, kind in kinds:
            if (value := getattr(self, name)) not in list(kind):
                raise ValueError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
            object.__setattr__(self, name, kind(value))
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if self.collective is Collective.SWITCH and self.codec is not None:
            raise ValueError(f"codec must be none with a switch, not {self.codec.kind}")
        if self.collective is Collective.SWITCH and self.preset != type(self).preset:
            raise ValueError(
                f"preset must not be given with a switch, not {self.preset!r}: it is for ring nodes"
            )
        if isinstance(self.codec, Inceptionn):  # a word of the node must be a group
            object.__setattr__(self, "codec", replace(self.codec, group=PRESETS[self.preset].lanes))
        _ = self.ring, self.link  # checks both configurations

    @property
    def ring(self) -> RingConfig:
        """Sizes of the ring nodes."""
        return replace(PRESETS[self.preset], codec=self.codec)

    @property
    def adds_halves(self) -> bool:
        """True if the hardware adds bfloat16 and float16 tensors, as a ring does."""
        return self.collective is Collective.RING

    @property
    def max_ranks(self) -> int:
        """Maximum number of ranks of a group."""
        return MAX_NODES if self.collective is Collective.RING else MAX_WORKERS

    def program(self, ranks: int) -> ProgramConfig:
        """Return the switch's program for a group of ``ranks``."""
        return ProgramConfig(workers=ranks, slots=SLOTS, values=VALUES)

    @property
    def link(self) -> LinkConfig:
        """Links of the nodes."""
        return LinkConfig(gbps=self.gbps)

    def report_file(self) -> Path | None:
        """Create the report's file, so that it can be written later; return its path, or None without a report.

        Raises InputError.
        """
        if self.report is None:
            return None
        try:
            Path(self.report).touch()
        except OSError as error:
            raise InputError(f"report={self.report}: {error.strerror}") from error
        return Path(self.report)

    def __str__(self) -> str:
        if self.collective is Collective.SWITCH:
            return f"NICs at a switch that aggregates, 32-bit integers, {self.gbps:g} Gb/s, {self.run}"
        codec = "no codec" if self.codec is None else str(self.codec)
        return f"ring NICs {self.preset}, {codec}, {self.gbps:g} Gb/s, {self.run}"

    @classmethod
    def parse(cls, text: str) -> Options:
        """Parse text such as ``rtl,codec=bfp,mantissa=5,gbps=40``: the platform, then options in any order.

        Raises InputError for an option that is unknown, repeated or out of range.
        """
        texts: dict[str, str] = {}
        for position, word in enumerate(text.split(",")):
            name, equals, value = (part.strip() for part in word.partition("="))
            name, value = (name, value) if equals or position else ("run", name)
            if name not in _NAMES or not value:
                raise InputError(
                    f"{word.strip()!r} is not an option; options are {' or '.join(Run)}, then {_FORM}"
                )
            if name in texts:
                raise InputError(f"{name} is given twice")
            texts[name] = value
        try:
            codec = _codec(texts)
            rate = float(texts.pop("gbps", cls.gbps))
            return cls(codec=codec, gbps=rate, **texts)  # type: ignore[arg-type]
        except ValueError as error:
            raise InputError(str(error)) from error

    @classmethod
    def of(cls, options: Any) -> Options:
        """Return ``pg_options`` if given; else the options of ``FANIN_BACKEND``; else the defaults.

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


_PARAMETERS = set(OWNERS) - {"group"}  # the group is always the preset's lanes
_NAMES = {field.name for field in fields(Options)} | _PARAMETERS
_FORM = ", ".join(f"{name}=…" for name in sorted(_NAMES - {"run"}))


def _codec(texts: dict[str, str]) -> CodecConfig | None:
    """Remove the codec's options from ``texts``, by option, and return the codec. Raises ValueError."""
    name = texts.pop("codec", Codec.NONE.value)
    if name not in list(Codec):
        raise ValueError(f"codec must be one of {', '.join(Codec)}, not {name!r}")
    parameters = {key: texts.pop(key) for key in OWNERS if key in _PARAMETERS & texts.keys()}
    for key in parameters:
        if name not in OWNERS[key]:
            raise ValueError(f"{key} is a parameter of {' and '.join(OWNERS[key])}, not of {name}")
    if name == Codec.NONE:
        return None
    values: dict[str, Any] = {key: _parameter(key, value) for key, value in parameters.items()}
    return CONFIGS[Codec(name)](**values)


def _parameter(name: str, value: str) -> int | str:
    if name in ENUMERATIONS:
        return parse_member(name, value)
    match = re.fullmatch(r"2\^-(\d+)" if name == "bound" else r"(\d+)", value)
    if not match:
        form = "a power of two as 2^-10" if name == "bound" else "a whole number"
        raise ValueError(f"{name} must be {form}, not {value!r}")
    return int(match[1])
