"""The page of ``fanin campaign``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fanin.campaign.page.charts import MOST_CHARTS, charts_of, facets_count, roles_of, table_of
from fanin.campaign.page.sheet import Sheet
from fanin.report.html import Rows, fill

_SHOWN = 20  # failed runs


def campaign_page(
    title: str,
    sheet: Sheet,
    *,
    counts: Mapping[str, int],
    failures: Rows,
    chosen: Sequence[str],
    log: Collection[str],
) -> str:
    """The page as one HTML document.

    ``counts``: runs by status. ``failures``: runs that failed and why. ``chosen``: figures that are drawn;
    where there are none, those that vary. ``log``: options and figures whose axes are logarithmic.
    """
    sheet = sheet.joined
    roles = roles_of(sheet)
    figures = list(chosen or _varying(sheet))[:MOST_CHARTS]
    drawn = {figure: charts_of(sheet, figure, roles, log) for figure in figures} if roles else {}
    more = facets_count(sheet, roles) - MOST_CHARTS if roles else 0
    return fill(
        "campaign.html.j2",
        title=title,
        counts=[(name, f"{count:,}") for name, count in counts.items()],
        bad=bool(failures),
        failures=failures[:_SHOWN],
        more_failures=max(0, len(failures) - _SHOWN),
        figures=drawn,
        more_charts=max(0, more),
        table=table_of(sheet, roles, figures) if figures else None,
    )


def _varying(sheet: Sheet) -> list[str]:
    """Figures that are not the same in all runs, numbers only."""
    return [
        figure
        for figure in sheet.figures
        if len({row.get(figure) for row in sheet.rows if isinstance(row.get(figure), (bool, int, float))}) > 1
    ]
