"""Report page of a campaign."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fanin.campaign.page.charts import MAX_CHARTS, charts_of, facets_count, roles_of, table_of
from fanin.campaign.page.sheet import Sheet
from fanin.report.html import Rows, fill

_MAX_FAILURES = 20  # maximum number of failed runs on the page


def campaign_page(
    title: str,
    sheet: Sheet,
    *,
    counts: Mapping[str, int],
    failures: Rows,
    figure_names: Sequence[str],
    log: Collection[str],
) -> str:
    """Return the page as one HTML document.

    - ``title``: title of the page.
    - ``sheet``: table of the runs.
    - ``counts``: number of runs by status.
    - ``failures``: name and error of each failed run.
    - ``figure_names``: figures (measured values of a run) to draw; empty: all figures that vary. The page has
      the first ``MAX_CHARTS`` of them, and names the others.
    - ``log``: options and figures with logarithmic axes.
    """
    sheet = sheet.join_options()
    roles = roles_of(sheet)
    all_figures = list(figure_names or _varying(sheet))
    figures = all_figures[:MAX_CHARTS]
    charts = {figure: charts_of(sheet, figure, roles, log) for figure in figures} if roles else {}
    omitted_charts = facets_count(sheet, roles) - MAX_CHARTS if roles else 0
    return fill(
        "campaign.html.j2",
        title=title,
        counts=[(name, f"{count:,}") for name, count in counts.items()],
        bad=bool(failures),
        failures=failures[:_MAX_FAILURES],
        more_failures=max(0, len(failures) - _MAX_FAILURES),
        figures=charts,
        more_charts=max(0, omitted_charts),
        more_figures=all_figures[MAX_CHARTS:],
        table=table_of(sheet, roles, figures) if figures else None,
    )


def _varying(sheet: Sheet) -> list[str]:
    """Return the numeric figures that differ between runs."""
    return [
        figure
        for figure in sheet.figures
        if len({row.get(figure) for row in sheet.rows if isinstance(row.get(figure), (bool, int, float))}) > 1
    ]
