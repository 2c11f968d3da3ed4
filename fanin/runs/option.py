"""Options of a run, declared once. The parser, Python signature, checks, JSON and pages derive from them.

docs/ARCHITECTURE.md, "A run's options".
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import types
import typing
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

from fanin.base.errors import InputError

_OPTION = "option"  # in a field's metadata
REQUIRED = dataclasses.MISSING  #: default of an option that must be given


class FileUse(Enum):
    """Use of the file or folder that an option names."""

    INPUT = "reads"  #: hashed into the provenance
    OUTPUT = "its folder"
    COPY = "a copy of a file of its folder"
    CAPTURE = "frames, which its folder does not hold"


@dataclass(frozen=True)
class Trait:
    """Property of some runs that an option requires, such as simulated links.

    - ``name``: its name in documentation.
    """

    name: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option.

    - ``name``: name of the field, the Python argument and the JSON key; with dashes on a command line.
    - ``kind``: type of one value: bool, int, float, str, Path or a StrEnum, whose members are the choices.
    - ``repeatable``: True if the option may be repeated; the value is then a tuple.
    - ``default``: value of an option that is not given; ``REQUIRED``: the option must be given.
    - ``meaning``: text of ``--help``.
    - ``group``: heading in help.
    - ``metavar``: placeholder of the value in help.
    - ``unit``: unit of a number.
    - ``default_text``: text of a default that depends on other options, for help.
    - ``choices``: allowed values; empty: all values of the kind.
    - ``low``, ``high``: inclusive limits of a number; None: only the run checks the value.
    - ``short``: short form on a command line, such as ``-o``.
    - ``positional``: True for an argument without dashes.
    - ``file_use``: use of the file that the option names; None: the option names no file.
    - ``trait``: trait that a run must have for this option; None: every run may have the option.
    - ``exclusive``: name of a set of options of which at most one may be given; None: no such set.
    - ``aliases``: earlier names.
    - ``training``: True if the option affects training, so that a resumed run keeps it.
    - ``changeable``: True if ``--beside`` of ``fanin ps train`` may change it for a run that is compared.
    """

    name: str
    kind: type[Any]
    repeatable: bool
    default: Any
    meaning: str
    group: Group
    metavar: str | None = None
    unit: str = ""
    default_text: str | None = None
    choices: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    short: str | None = None
    positional: bool = False
    file_use: FileUse | None = None
    trait: Trait | None = None
    exclusive: str | None = None
    aliases: tuple[str, ...] = ()
    training: bool = True
    changeable: bool = False

    @property
    def required(self) -> bool:
        """Whether the option must be given."""
        return self.default is REQUIRED

    @property
    def values(self) -> tuple[Any, ...]:
        """Allowed values, as on a command line; empty: all of the kind."""
        return tuple(map(str, self.kind)) if issubclass(self.kind, StrEnum) else self.choices

    @property
    def label(self) -> str:
        """Name in a message, as on a command line."""
        if self.positional:
            return self.metavar or self.name
        return self.short or option_flag(self.name)

    @property
    def help(self) -> str:
        """Text of help: meaning, unit and default."""
        text = f"{self.meaning}, in {self.unit}" if self.unit else self.meaning
        default = self.default_text
        omits_default = self.required or self.repeatable or self.kind is bool
        if default is None and self.default is not None and not omits_default:
            default = value_text(self.default)
        return text if default is None else f"{text} (default: {default})"

    def value_text(self, value: Any) -> str:
        """Return a value as text for messages."""
        return "none" if value is None else value_text(value)

    def as_written(self, value: Any) -> str:
        """Return the option with a value as on a command line."""
        if self.kind is bool:
            return option_flag(self.name if value else f"no-{self.name}")
        return f"{self.label} {self.value_text(value)}"

    def check(self, value: Any) -> None:
        """Raise InputError for a value outside the range or the choices."""
        if value is None:
            return
        if self.values and value not in self.values:
            raise InputError(f"{self.name} must be one of {', '.join(map(str, self.values))}, not {value!r}")
        low, high = self.low, self.high
        if (low is None or value >= low) and (high is None or value <= high):
            return
        limits = (
            f"at least {value_text(low)}" if high is None else f"in [{value_text(low)}, {value_text(high)}]"
        )
        raise InputError(f"{self.name.replace('_', '-')} must be {limits}, not {value_text(value)}")

    def convert(self, value: Any) -> Any:
        """Check a value from Python or JSON and convert it to the option's kind. Raises InputError."""
        if value is None:
            if self.required:
                raise InputError(f"{self.name} must be given")
            return self.default
        values = value if isinstance(value, list | tuple) and self.repeatable else [value]
        converted = tuple(map(self._convert_one, values))
        return converted if self.repeatable else converted[0]

    def parse(self, text: str) -> Any:
        """Convert text from a command line to the option's value. Raises InputError."""
        if self.kind in (int, float):
            with contextlib.suppress(ValueError):  # convert() rejects text that is not a number
                return self.convert(self.kind(text))
        return self.convert(text)

    def _convert_one(self, value: Any) -> Any:
        if issubclass(self.kind, StrEnum):
            self.check(value)
            return self.kind(value)
        accepted, kind_name = _ACCEPTED[Path if self.file_use else self.kind]
        if not isinstance(value, accepted) or (isinstance(value, bool) and self.kind is not bool):
            raise InputError(f"{self.name} must be {kind_name}, not {value!r}")
        return os.fspath(value) if isinstance(value, os.PathLike) and self.kind is str else self.kind(value)


class _Booleans(type):
    """Instance check for bools of Python and NumPy, without loading NumPy."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


class _Boolean(metaclass=_Booleans):
    """Type that has Python's and NumPy's bools as instances."""


#: By kind: accepted types of a Python argument, and their name in messages.
_ACCEPTED: Mapping[type, tuple[Any, str]] = {
    bool: (_Boolean, "True or False"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: ((str, os.PathLike, Real), "a text"),
    Path: ((str, os.PathLike), "a path"),
}


@dataclass(frozen=True)
class Group:
    """A group of options under one heading of help.

    - ``title``: the heading; empty for options without one.
    - ``training``: True if the group's options affect training.
    - ``shown``: True if the run's page shows the group's options.
    """

    title: str
    training: bool = True
    shown: bool = True


def option(group: Group, default: Any, meaning: str, metavar: str | None = None, **members: Any) -> Any:
    """Return a field of an options table. ``members``: other members of :class:`Option`."""
    metadata = {"default": default, "meaning": meaning, "metavar": metavar, "group": group}
    return field(default=default, metadata={_OPTION: {"training": group.training, **metadata, **members}})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run with their values. A run's options table is a frozen dataclass derived from this one.

    :func:`option` makes the fields. A field's type is ``kind``, ``kind | None``, or ``tuple[kind, ...]`` for an
    option that may be repeated.

    - ``given``: names of the options that the caller has set, also to their defaults.
    """

    given: frozenset[str] = frozenset()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Return the options of a call in Python. None means that an option is not given.

        An earlier name works and causes a DeprecationWarning. Raises InputError for a value of another kind or
        out of range, TypeError for an unknown name.
        """
        options = {option.name: option for option in options_of(cls)}
        new_names = {alias: option.name for option in options.values() for alias in option.aliases}
        for name in given.keys() & new_names:
            if new_names[name] in given:
                raise TypeError(f"{name} and {new_names[name]} are the same option")
            warnings.warn(f"{name} is {new_names[name]} now", DeprecationWarning, stacklevel=4)
        given = {new_names.get(name, name): value for name, value in given.items()}
        if unknown := [name for name in given if name not in options]:
            raise TypeError(f"there is no option {unknown[0]!r}")
        required = [name for name, option in options.items() if option.required]
        values = {**dict.fromkeys(required), **given}
        converted = {
            name: options[name].convert(value)
            for name, value in values.items()
            if value is not None or name in required
        }
        read = cls(**converted, given=frozenset(converted))
        read.check_values()
        return read

    @classmethod
    def of(cls, args: Any) -> Self:
        """Return the options of a parsed command line (``fanin.cli.options``). Raises InputError."""
        values = {option.name: option.convert(getattr(args, option.name)) for option in options_of(cls)}
        parsed = cls(**values, given=args.given)
        parsed.check_values()
        return parsed

    def check_values(self) -> None:
        """Raise InputError for the first value outside its range or choices."""
        for option in options_of(type(self)):
            value = getattr(self, option.name)
            for item in value if option.repeatable and value else [value]:
                option.check(item)

    def refuse(self, reasons: Mapping[Trait, str]) -> None:
        """Raise InputError for given options whose trait the run lacks. ``reasons``: why, by trait."""
        for trait, reason in reasons.items():
            given = (option for option in options_of(type(self)) if option.name in self.given)
            if names := [option.label for option in given if option.trait == trait]:
                raise InputError(f"{', '.join(names)}: {reason}")

    def as_json(self) -> dict[str, Any]:
        """Return all values by name, with paths as text."""
        return {option.name: _json(getattr(self, option.name)) for option in options_of(type(self))}

    def words(self) -> list[str]:
        """Return the words of an equivalent command line, without options at their defaults.

        Raises InputError if a positional argument is given and an earlier one is not.
        """
        words: list[str] = []
        for option in options_of(type(self)):
            value = getattr(self, option.name)
            if value is None or value == option.default or option.positional:
                continue
            if option.kind is bool:
                words.append(option.as_written(value))
            elif option.short:
                attached = str(value).startswith("-")
                words += [f"{option.short}{value}"] if attached else [option.short, str(value)]
            else:
                words += [f"{option.label}={item}" for item in (value if option.repeatable else [value])]
        return [*words, *self._positional_words()]

    def _positional_words(self) -> list[str]:
        """Return the positional arguments up to the last one that is not at its default."""
        options = [option for option in options_of(type(self)) if option.positional]
        while options and getattr(self, options[-1].name) in (None, options[-1].default):
            options.pop()
        values = {option.name: getattr(self, option.name) for option in options}
        if missing := [name for name, value in values.items() if value is None]:
            raise InputError(f"{options[-1].name} needs {missing[0]} before it")
        return ["--", *map(str, values.values())] if values else []


OUTPUT = Group("output", training=False, shown=False)


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Options of a run that writes a folder."""

    output: Path | None = option(OUTPUT, None, "the run's folder", "DIR", short="-o", file_use=FileUse.OUTPUT)


def options_of(table: type[Options]) -> tuple[Option, ...]:
    """Return the options of a table in the order of help: its own, then those of its bases."""
    hashable: Any = table
    return _options_of(hashable)


@functools.cache
def _options_of(table: Any) -> tuple[Option, ...]:
    hints = typing.get_type_hints(table)
    fields = {member.name: member for member in dataclasses.fields(table)}
    names = dict.fromkeys(
        name for part in table.__mro__ for name in inspect.get_annotations(part) if name in fields
    )
    return tuple(
        Option(name=name, **_kind(hints[name]), **fields[name].metadata[_OPTION])
        for name in names
        if _OPTION in fields[name].metadata
    )


def option_of(table: type[Options], name: str) -> Option:
    """Return an option of a table by its name."""
    return next(option for option in options_of(table) if option.name == name)


def option_flag(name: str) -> str:
    """Return an option's name as on a command line."""
    return f"--{name.replace('_', '-')}"


def value_text(value: Any) -> str:
    """Return a value as text for help and messages."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _kind(hint: Any) -> dict[str, Any]:
    """Return ``kind`` and ``repeatable`` of a field by its type hint."""
    if isinstance(hint, types.UnionType):
        (hint,) = (part for part in hint.__args__ if part is not types.NoneType)
    repeatable = typing.get_origin(hint) is tuple
    return {"kind": hint.__args__[0] if repeatable else hint, "repeatable": repeatable}


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(map(_json, value))
    return str(value) if isinstance(value, Path | StrEnum) else value
