"""Charts of a campaign. The varying options determine axes, series and facets."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fanin.campaign.page.sheet import ABSENT, Point, Sheet, shown
from fanin.campaign.page.statistics import Mean
from fanin.report.chart import Axis, Bar, Chart
from fanin.report.palette import STEPS, Style, step_colour

MOST_CHARTS = 12  # maximum number of figures, and of charts per figure
_CUT = 0.1  # fraction of the mean at which a band is cut off on a logarithmic axis
_FEW = 3  # fewer numbers make no axis if another kind of option varies


@dataclass(frozen=True)
class Roles:
    """Roles of the varying options in a figure's charts.

    - ``x``: option on the x axis.
    - ``series``: option that distinguishes the series; None: a single series.
    - ``facets``: options with a chart for each combination of values.
    - ``numeric``: True if ``x`` has numbers only, for lines in place of bars.
    """

    x: str
    series: str | None
    facets: tuple[str, ...]
    numeric: bool

    @property
    def options(self) -> tuple[str, ...]:
        """All varying options: facets, series, x."""
        return (*self.facets, *((self.series,) if self.series else ()), self.x)


def roles_of(sheet: Sheet) -> Roles | None:
    """Assign the varying options to roles; return None if no option varies."""
    varying = sorted(sheet.varying, key=lambda option: -len(sheet.values(option)))
    if not varying:
        return None
    numeric = [option for option in varying if sheet.is_numeric(option)]
    if numeric and len(sheet.values(numeric[0])) < _FEW and len(numeric) < len(varying):
        numeric = []
    x = (numeric or varying)[0]
    rest = [option for option in varying if option != x]
    words = [option for option in rest if not sheet.is_numeric(option)]
    candidates = [option for option in words or rest if len(sheet.values(option)) <= len(STEPS)]
    series = candidates[0] if candidates else None
    facets = tuple(option for option in rest if option != series)
    return Roles(x, series, facets, bool(numeric))


def charts_of(sheet: Sheet, figure: str, roles: Roles, log: Collection[str]) -> list[Chart]:
    """Return a chart per combination of facets, with a common y axis. ``log``: names of logarithmic axes."""
    means = sheet.means(figure, roles.options)
    facets = list(dict.fromkeys(point[: len(roles.facets)] for point in means))
    y = Axis(figure, "~g", ".6g", log=figure in log)
    return [_chart(sheet, figure, roles, facet, means, y, log) for facet in facets[:MOST_CHARTS]]


def facets_count(sheet: Sheet, roles: Roles) -> int:
    """Count the charts of a figure: combinations of facets."""
    return len({tuple(row.get(option) for option in roles.facets) for row in sheet.rows})


def _chart(
    sheet: Sheet,
    figure: str,
    roles: Roles,
    facet: Point,
    means: dict[Point, Mean],
    y: Axis,
    log: Collection[str],
) -> Chart:
    place = ", ".join(said(option, value) for option, value in zip(roles.facets, facet, strict=True))
    xs = sheet.values(roles.x)
    names = () if roles.numeric else [shown(x) for x in xs]
    x_axis = Axis(roles.x, "~g" if roles.numeric else "", log=roles.x in log and roles.numeric, names=names)
    chart = Chart(f"{figure}{': ' if place else ''}{place}", x_axis, y)
    for number, series in enumerate(sheet.values(roles.series) if roles.series else [None]):
        own = (*facet, *((series,) if roles.series else ()))
        points = [(n, x, means[(*own, x)]) for n, x in enumerate(xs) if (*own, x) in means]
        if not points:
            continue
        name = said(roles.series, series) if roles.series else figure
        style = Style(step_colour(number))
        if roles.numeric:
            if several := [(x, *_ends(mean, y)) for _, x, mean in points if mean.low is not None]:
                chart.band(f"{name}, 95 %", several, style)
            chart.line(name, [(x, mean.value) for _, x, mean in points], style)
        else:
            chart.bars(name, _bars(roles.x, name, points), style)
    return chart


def _ends(mean: Mean, y: Axis) -> tuple[float, float]:
    """Return a mean's interval; on a logarithmic axis, the low end is at least ``_CUT`` of the mean."""
    low, high = mean.ends
    return (max(low, _CUT * mean.value) if y.log else low), high


def _bars(x: str, name: str, points: Sequence[tuple[int, object, Mean]]) -> Iterator[Bar]:
    for place, value, mean in points:
        low, high = mean.ends
        hint = f"{said(x, value)}, {name}: {mean.value:.6g}"
        if mean.low is not None:
            hint += f" ({low:.6g} to {high:.6g}, {mean.count} runs)"
        yield Bar(place, mean.value, hint, interval=(low, high))


def said(option: str, value: object) -> str:
    """Return an option and its value as text."""
    return f"{option} {shown(value)}"


def table_of(sheet: Sheet, roles: Roles | None, figures: Sequence[str]) -> list[list[str]]:
    """Return means and intervals, with a row per combination of options; the first row is the header."""
    options = roles.options if roles else ()
    found = {figure: sheet.means(figure, options) for figure in figures}
    points = dict.fromkeys(itertools.chain.from_iterable(found.values()))
    rows = [[*options, "runs", *figures]]
    for point in points:
        means = [found[figure].get(point) for figure in figures]
        runs = max(mean.count for mean in means if mean)
        rows.append([*map(shown, point), str(runs), *(_with_interval(mean) for mean in means)])
    return rows


def _with_interval(mean: Mean | None) -> str:
    if mean is None:
        return ABSENT
    low, high = mean.ends
    return f"{mean.value:.5g}" + (f" ± {(high - low) / 2:.2g}" if high > low else "")
