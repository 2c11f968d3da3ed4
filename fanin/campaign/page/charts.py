"""Charts of a campaign. The varying options determine axes, series and facets."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fanin.campaign.page.sheet import ABSENT, Point, Sheet, value_text
from fanin.campaign.page.statistics import Mean
from fanin.report.chart import Axis, Bar, Chart
from fanin.report.palette import STEPS, Style, step_colour

MAX_CHARTS = 12  # maximum number of figures, and of charts per figure
_BAND_FLOOR = 0.1  # on a logarithmic axis, lowest end of a band, as a fraction of the mean
_MIN_AXIS_NUMBERS = 3  # an option with fewer distinct numbers is not the x axis if a text option varies


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
    if numeric and len(sheet.values(numeric[0])) < _MIN_AXIS_NUMBERS and len(numeric) < len(varying):
        numeric = []
    x = (numeric or varying)[0]
    other_options = [option for option in varying if option != x]
    words = [option for option in other_options if not sheet.is_numeric(option)]
    candidates = [option for option in words or other_options if len(sheet.values(option)) <= len(STEPS)]
    series = candidates[0] if candidates else None
    facets = tuple(option for option in other_options if option != series)
    return Roles(x, series, facets, bool(numeric))


def charts_of(sheet: Sheet, figure: str, roles: Roles, log: Collection[str]) -> list[Chart]:
    """Return a chart per combination of facets, with a common y axis. ``log``: names of logarithmic axes."""
    means = sheet.means(figure, roles.options)
    facets = list(dict.fromkeys(point[: len(roles.facets)] for point in means))
    y = Axis(figure, "~g", ".6g", log=figure in log)
    return [_chart(sheet, figure, roles, facet, means, y, log) for facet in facets[:MAX_CHARTS]]


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
    facet_text = ", ".join(
        option_text(option, value) for option, value in zip(roles.facets, facet, strict=True)
    )
    xs = sheet.values(roles.x)
    names = () if roles.numeric else [value_text(x) for x in xs]
    x_axis = Axis(roles.x, "~g" if roles.numeric else "", log=roles.x in log and roles.numeric, names=names)
    chart = Chart(f"{figure}{': ' if facet_text else ''}{facet_text}", x_axis, y)
    for number, series in enumerate(sheet.values(roles.series) if roles.series else [None]):
        group = (*facet, *((series,) if roles.series else ()))
        points = [(n, x, means[(*group, x)]) for n, x in enumerate(xs) if (*group, x) in means]
        if not points:
            continue
        name = option_text(roles.series, series) if roles.series else figure
        style = Style(step_colour(number))
        if roles.numeric:
            if band := [(x, *_drawn_interval(mean, y)) for _, x, mean in points if mean.low is not None]:
                chart.band(f"{name}, 95 %", band, style)
            chart.line(name, [(x, mean.value) for _, x, mean in points], style)
        else:
            chart.bars(name, _bars(roles.x, name, points), style)
    return chart


def _drawn_interval(mean: Mean, y: Axis) -> tuple[float, float]:
    """Return a mean's interval; on a logarithmic axis, the low end is at least ``_BAND_FLOOR`` of the mean."""
    low, high = mean.ends
    return (max(low, _BAND_FLOOR * mean.value) if y.log else low), high


def _bars(x: str, name: str, points: Sequence[tuple[int, object, Mean]]) -> Iterator[Bar]:
    for position, value, mean in points:
        low, high = mean.ends
        hint = f"{option_text(x, value)}, {name}: {mean.value:.6g}"
        if mean.low is not None:
            hint += f" ({low:.6g} to {high:.6g}, {mean.count} runs)"
        yield Bar(position, mean.value, hint, interval=(low, high))


def option_text(option: str, value: object) -> str:
    """Return an option and its value as text."""
    return f"{option} {value_text(value)}"


def table_of(sheet: Sheet, roles: Roles | None, figures: Sequence[str]) -> list[list[str]]:
    """Return means and intervals, with a row per combination of options; the first row is the header."""
    options = roles.options if roles else ()
    figure_means = {figure: sheet.means(figure, options) for figure in figures}
    points = dict.fromkeys(itertools.chain.from_iterable(figure_means.values()))
    rows = [[*options, "runs", *figures]]
    for point in points:
        means = [figure_means[figure].get(point) for figure in figures]
        runs = max(mean.count for mean in means if mean)
        rows.append([*map(value_text, point), str(runs), *(_with_interval(mean) for mean in means)])
    return rows


def _with_interval(mean: Mean | None) -> str:
    if mean is None:
        return ABSENT
    low, high = mean.ends
    return f"{mean.value:.5g}" + (f" ± {(high - low) / 2:.2g}" if high > low else "")
