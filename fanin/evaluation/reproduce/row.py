"""A row of the table: what a paper claims, and what fanin finds for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from fanin.evaluation.origins.graph import origin
from fanin.evaluation.origins.kinds import Origin, joined
from fanin.evaluation.reproduce.value import Figures, Value


@dataclass(frozen=True)
class Measurement:
    """A command of fanin's, and what to take of the figures that it prints as JSON.

    ``command``: its arguments, without ``--json``; ``folder``: it takes ``-o DIR``. ``data``: what names the
    file of a data set among them, ``{}``. ``place``: what precedes the paths of a command that is no benchmark
    in the graph of origins; identifiers of a benchmark's figures are whole.
    """

    command: tuple[str, ...]
    value: Value
    folder: bool = False
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    place: str = ""

    @cached_property
    def origin(self) -> Origin:
        """How the number came about: the origins of its figures, joined. Raises KeyError for an unknown one."""
        prefix = f"{self.place}." if self.place else ""
        return joined(origin(prefix + figure) for figure in self.value.figures)

    @property
    def name(self) -> str:
        """Of its files; of no other command."""
        return "-".join(part.strip("-").replace("/", "-") for part in self.command)


@dataclass(frozen=True)
class Follows:
    """The algebra by which numbers of the paper fix a row's number, so that the model predicts nothing.

    ``text``: the numbers, for a reader. ``value``: the row's number from the published facts, by identifier.
    """

    text: str
    value: Callable[[Figures], float]


@dataclass(frozen=True)
class Row:
    """A number that a paper prints."""

    figure: str  #: of the paper, as ``9`` or ``table-3``
    what: str
    section: str  #: of the paper's text that has the number
    paper: float
    unit: str
    full: Measurement
    quick: Measurement | None = None  #: a smaller measurement of the same; None: the whole is quick
    why: str = ""  #: what the difference is made of
    stand_in: str = ""  #: what is measured while the data set of the measurement is missing
    data_set: str = ""  #: the data set, if the measurement names several
    slow: bool = False  #: there is no quick measurement
    model: str = ""  #: model of a paper's machines that has the number; its :class:`Fit` is not the same number
    follows: Follows | None = None  #: set if the model adds nothing to the algebra
    settings: Mapping[str, Value] = field(default_factory=dict)  #: the number in each of several settings
    series: str = ""  #: curve of the figure on which the number lies
    x: float | None = None  #: place on the curve

    def measurement(self, *, quick: bool) -> Measurement:
        """The one to carry out."""
        return self.quick if quick and self.quick else self.full


@dataclass(frozen=True)
class Point:
    """Place of a figure on a curve."""

    curve: str
    x: float


@dataclass(frozen=True)
class Picture:
    """A figure over an axis of numbers: curves of what commands print, the paper's numbers beside them.

    ``patterns``: of identifiers of the points, with ``*``. Without one the points are the rows' own. The
    paper's are those of rows and fits of the figure that have an ``x``.
    """

    figure: str
    title: str
    x: str
    y: str
    patterns: tuple[str, ...] = ()
    log: bool = False  #: both axes

    def series(self, figures: Figures, points: Mapping[str, Point]) -> dict[str, list[tuple[float, float]]]:
        """Points of each curve, by x."""
        found: dict[str, list[tuple[float, float]]] = {}
        for name, point in points.items():
            if any(fnmatchcase(name, pattern) for pattern in self.patterns):
                found.setdefault(point.curve, []).append((point.x, figures[name]))
        return {name: sorted(each) for name, each in found.items()}


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
