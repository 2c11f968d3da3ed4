"""Rows of the reproduction table: numbers that papers claim, and the measurements that reproduce them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from fanin.evaluation.origins.graph import origin
from fanin.evaluation.origins.kinds import Origin, join_origins
from fanin.evaluation.reproduce.value import Figures, Value


@dataclass(frozen=True)
class Measurement:
    """Command of fanin, and the value to compute from the figures in its JSON output.

    - ``command``: arguments of the command, without ``--json``.
    - ``value``: value of the row, computed from the figures.
    - ``folder``: True if the command takes ``-o DIR``.
    - ``data``: additional arguments for each data set, by its name; ``{}`` is replaced by the file.
    - ``id_prefix``: prefix of the figures' paths in the graph of origins; empty for a benchmark.
    """

    command: tuple[str, ...]
    value: Value
    folder: bool = False
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    id_prefix: str = ""

    @cached_property
    def origin(self) -> Origin:
        """Origin of the number: the joined origins of its figures. Raises KeyError for an unknown figure."""
        prefix = f"{self.id_prefix}." if self.id_prefix else ""
        return join_origins(origin(prefix + figure) for figure in self.value.figures)

    @property
    def name(self) -> str:
        """Unique name of the command's files."""
        return "-".join(part.strip("-").replace("/", "-") for part in self.command)


@dataclass(frozen=True)
class Derivation:
    """Algebra that derives a row's number from other numbers of the paper, without a prediction of the model.

    - ``text``: the other numbers, for a reader.
    - ``value``: function that computes the row's number from the published facts, by identifier.
    """

    text: str
    value: Callable[[Figures], float]


@dataclass(frozen=True)
class Row:
    """Row of the table: a number that a paper prints."""

    figure: str  #: figure or table of the paper, such as ``9`` or ``table-3``
    quantity: str  #: description of the number
    section: str  #: section of the paper with the number
    claimed: float  #: the paper's number
    unit: str
    full: Measurement
    quick: Measurement | None = None  #: smaller measurement of the number; None: ``full`` is quick
    explanation: str = ""  #: explanation of the difference
    stand_in: str = ""  #: text: stand-in for a missing data set
    data_set: str = ""  #: the row's data set, if the measurement has several
    slow: bool = False  #: True: no quick measurement exists
    model: str = ""  #: model that predicts or derives the number; it is not fitted to it
    derivation: Derivation | None = None  #: algebra that determines the number without the model
    settings: Mapping[str, Value] = field(default_factory=dict)  #: the number in several settings
    series: str = ""  #: curve of the number in the figure
    x: float | None = None  #: x of the number on the curve

    def measurement(self, *, quick: bool) -> Measurement:
        """Return the measurement to carry out."""
        return self.quick if quick and self.quick else self.full


@dataclass(frozen=True)
class Point:
    """Position ``x`` of a figure on a ``curve``."""

    curve: str
    x: float


@dataclass(frozen=True)
class Picture:
    """Figure with a numeric x axis: curves of measured points, and the paper's numbers.

    The paper's points are the rows and fits of the figure that have an ``x``.

    - ``figure``: figure of the paper.
    - ``title``: title of the picture.
    - ``x``, ``y``: labels of the axes.
    - ``patterns``: patterns with ``*`` for identifiers of measured points; empty: the points of the rows.
    """

    figure: str
    title: str
    x: str
    y: str
    patterns: tuple[str, ...] = ()
    log: bool = False  #: True: both axes are logarithmic

    def series(self, figures: Figures, points: Mapping[str, Point]) -> dict[str, list[tuple[float, float]]]:
        """Return the points of each curve, sorted by x."""
        points_by_curve: dict[str, list[tuple[float, float]]] = {}
        for name, point in points.items():
            if any(fnmatchcase(name, pattern) for pattern in self.patterns):
                points_by_curve.setdefault(point.curve, []).append((point.x, figures[name]))
        return {name: sorted(curve_points) for name, curve_points in points_by_curve.items()}


@dataclass(frozen=True)
class Fit:
    """Number of a paper to which a model is fitted. The number is therefore no row.

    - ``model``: name of the model.
    - ``fitted_input``: fitted input of the model.
    - ``claim``: text: the paper's number or numbers.
    - ``claimed``: the paper's number; None if there are several.
    - ``unit``: unit of the number.
    - ``measurement``: measurement of the model's value for the number.
    - ``figure``: figure of the paper.
    - ``series``: curve of the number in the figure.
    - ``x``: x of the number on the curve.
    """

    model: str
    fitted_input: str
    claim: str
    claimed: float | None = None
    unit: str = ""
    measurement: Measurement | None = None
    figure: str = ""
    series: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Paper:
    """Paper with its rows, and the fits to its numbers."""

    name: str
    title: str
    rows: tuple[Row, ...]
    fits: tuple[Fit, ...] = ()
    pictures: tuple[Picture, ...] = ()
    not_here: tuple[str, ...] = ()  #: figures and tables without a row, each with its reason

    @property
    def figures(self) -> list[str]:
        """Figures of the rows, in the order of the rows."""
        return list(dict.fromkeys(row.figure for row in self.rows))
