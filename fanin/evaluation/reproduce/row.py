"""A row of the table: what a paper claims, and what fanin measures for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Figures = Mapping[str, float]  # what a command prints, by name
Value = Callable[[Figures], float]  # a row's number of them; KeyError where one is not there


class How(StrEnum):
    """Where our number comes from. What is fitted to a row's own number is no row: it is a :class:`Fit`."""

    RTL = "RTL"  #: cycles, or values, of the emitted Verilog in simulation
    SYNTHESIS = "synthesis"  #: what yosys makes of it
    TIED = "model held to RTL"  #: a test holds it to the RTL's cycles
    PLAN = "plan"  #: the planner's, whose throughput RTL has been held to
    HOST = "this machine"  #: seconds of a library on its processor
    MODEL = "model"  #: of machines that fanin does not build; its inputs are the paper's, or fitted elsewhere


@dataclass(frozen=True)
class Measurement:
    """A command of fanin's, and what to take of the figures that it prints as JSON.

    ``command``: its arguments, without ``--json``; ``folder``: it takes ``-o DIR``. ``data``: what names the
    file of a data set among them, ``{}``.
    """

    command: tuple[str, ...]
    value: Value
    folder: bool = False
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its files; of no other command."""
        return "-".join(part.strip("-").replace("/", "-") for part in self.command)


@dataclass(frozen=True)
class Row:
    """A number that a paper prints.

    ``figure`` carries it there, as ``9`` or ``table-3``; ``section``: where its text says so.
    ``quick``: a smaller measurement of the same; None: the whole is quick. ``quick_how``: where its number
    comes from, if not from ``how``. ``why``: what the difference is made of. ``stand_in``: what is measured
    while the data set that the measurement names is not at hand. ``slow``: there is no quick measurement.
    ``model``: of a paper's machines, which predicts it; its :class:`Fit` is not the same number. ``series``,
    ``x``: where the number stands in the figure, if that has an axis of numbers.
    """

    figure: str
    what: str
    section: str
    paper: float
    unit: str
    how: How
    full: Measurement
    quick: Measurement | None = None
    quick_how: How | None = None
    why: str = ""
    stand_in: str = ""
    slow: bool = False
    model: str = ""
    series: str = ""
    x: float | None = None

    def measurement(self, *, quick: bool) -> Measurement:
        """The one to carry out."""
        return self.quick if quick and self.quick else self.full

    def source(self, *, quick: bool) -> How:
        """Where the number comes from."""
        return self.quick_how if quick and self.quick_how else self.how


@dataclass(frozen=True)
class Picture:
    """A figure over an axis of numbers: curves of what commands print, the paper's numbers beside them.

    ``pattern``: of names of figures; its group ``x`` says where each stands, its other groups, joined, in
    which series. Without one the points are the rows' own. The paper's are those of rows and fits of the
    figure that have an ``x``.
    """

    figure: str
    title: str
    x: str
    y: str
    pattern: str = ""
    log: bool = False  #: both axes

    def series(self, figures: Figures) -> dict[str, list[tuple[float, float]]]:
        """Points of each series, by x."""
        found: dict[str, list[tuple[float, float]]] = {}
        for name, value in figures.items():
            if self.pattern and (match := re.fullmatch(self.pattern, name)):
                groups = match.groupdict()
                x = float(groups.pop("x"))
                found.setdefault(", ".join(filter(None, groups.values())), []).append((x, value))
        return {name: sorted(points) for name, points in found.items()}


@dataclass(frozen=True)
class Fit:
    """A number of a paper that is an input of a model: fitted, so that it is no row of its own.

    ``what`` of the model is fitted, ``paper``: to what, in words. ``claimed``, where it is one number, and
    what the model makes of it: ``found``, as a row's. ``figure``, ``series``, ``x``: as a row's.
    """

    model: str
    what: str
    paper: str
    claimed: float | None = None
    unit: str = ""
    found: Measurement | None = None
    figure: str = ""
    series: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Paper:
    """A paper: its rows, and what is fitted to it."""

    name: str
    title: str
    rows: tuple[Row, ...]
    fits: tuple[Fit, ...] = ()
    pictures: tuple[Picture, ...] = ()
    not_here: tuple[str, ...] = ()  #: figures and tables without a row, each with its reason

    @property
    def figures(self) -> list[str]:
        """Of its rows, in their order."""
        return list(dict.fromkeys(row.figure for row in self.rows))


def taken(value: Value) -> str:
    """What a row takes of its command's figures, in words."""
    return (value.__doc__ or "").partition("\n")[0].removesuffix(".")


def said(text: str, value: Value) -> Value:
    """``value``, which says of itself ``text``."""
    value.__doc__ = text
    return value


def one(name: str, scale: float = 1.0) -> Value:
    """The figure itself, times ``scale``."""
    return said(name if scale == 1 else f"{scale:g} × “{name}”", lambda figures: scale * figures[name])


def inverse(name: str) -> Value:
    """One over the figure."""
    return said(f"1 ÷ “{name}”", lambda figures: 1 / figures[name])


def ratio(over: str, under: str) -> Value:
    """One figure over another."""
    return said(f"“{over}” ÷ “{under}”", lambda figures: figures[over] / figures[under])


def percent(part: str, whole: str) -> Value:
    """One figure in % of another."""
    return said(f"100 × “{part}” ÷ “{whole}”", lambda figures: 100 * figures[part] / figures[whole])


def saved(now: str, before: str) -> Value:
    """What is saved of ``before``, in %."""
    return said(f"100 × (1 − “{now}” ÷ “{before}”)", lambda figures: 100 * (1 - figures[now] / figures[before]))


def extreme(pick: Callable[[Iterable[float]], float], pattern: str, of: Sequence[str] = ()) -> Value:
    """The least or the most (``pick``: min, max) of the figures whose names match ``pattern``, whole.

    KeyError where there are none, or none whose first group is one of ``of``.
    """

    def value(figures: Figures) -> float:
        matches = ((re.fullmatch(pattern, name), value) for name, value in figures.items())
        found = [(match, value) for match, value in matches if match]
        if not found or set(of) - {match[1] for match, _ in found if of}:
            raise KeyError(pattern)
        return pick(value for _, value in found)

    return said(f"{pick.__name__} of /{pattern}/", value)
