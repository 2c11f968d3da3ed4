"""A row of the table: what a paper claims, and what fanin measures for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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

    def measurement(self, *, quick: bool) -> Measurement:
        """The one to carry out."""
        return self.quick if quick and self.quick else self.full

    def source(self, *, quick: bool) -> How:
        """Where the number comes from."""
        return self.quick_how if quick and self.quick_how else self.how


@dataclass(frozen=True)
class Picture:
    """A figure, drawn from what its rows' commands print.

    ``pattern``: of the figures' names; its groups ``series`` and ``x`` say where each stands.
    """

    figure: str
    title: str
    x: str
    y: str
    pattern: str
    log: bool = False  #: both axes

    def series(self, figures: Figures) -> dict[str, list[tuple[float, float]]]:
        """Points of each series, by x."""
        found: dict[str, list[tuple[float, float]]] = {}
        for name, value in figures.items():
            if match := re.fullmatch(self.pattern, name):
                found.setdefault(match["series"], []).append((float(match["x"]), value))
        return {name: sorted(points) for name, points in found.items()}


@dataclass(frozen=True)
class Fit:
    """A number of a paper that is an input of a model: fitted, so that it is no row of its own."""

    model: str
    what: str
    paper: str


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


def one(name: str, scale: float = 1.0) -> Value:
    """The figure itself, times ``scale``."""
    return lambda figures: scale * figures[name]


def ratio(over: str, under: str) -> Value:
    """One figure over another."""
    return lambda figures: figures[over] / figures[under]


def saved(now: str, before: str) -> Value:
    """What is saved of ``before``, in %."""
    return lambda figures: 100 * (1 - figures[now] / figures[before])
