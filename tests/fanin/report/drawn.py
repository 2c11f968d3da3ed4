"""What charts draw, as tests read it: the figures in a page's JSON, their series and bars."""

import json
import re
from dataclasses import dataclass
from html import unescape
from importlib import resources

PLOTLY = resources.files("fanin.report").joinpath("plotly/plotly-basic.min.js").read_text()


@dataclass(frozen=True)
class Drawn:
    """A bar of a figure, and the series that it belongs to."""

    series: str
    place: float
    begin: float
    size: float
    hint: str


def bars(figure):
    """Every bar, series by series."""
    found = []
    for series in figure["data"]:
        along, across = ("x", "y") if series["orientation"] == "h" else ("y", "x")
        values = zip(
            series[across],
            series.get("base", [0.0] * len(series[along])),
            series[along],
            series["hovertext"],
            strict=True,
        )
        found += [Drawn(series["name"], *each) for each in values]
    return found


def names(figure):
    """The series, in the order of the legend."""
    found = [series["name"] for series in figure["data"]]
    return found[::-1] if figure["layout"]["legend"]["traceorder"] == "reversed" else found


def points(figure, name):
    """The points of a line."""
    (series,) = (series for series in figure["data"] if series["name"] == name)
    return list(zip(series["x"], series["y"], strict=True))


def rows(figure):
    """The names of the rows, from the top."""
    return figure["layout"]["yaxis"]["ticktext"]


def figures(page):
    """The figures of a page, by name, from the JSON in it."""
    found = re.findall(
        r'<figure class="chart" aria-label="([^"]*)"><script type="application/json">(.*?)</script>', page
    )
    return {unescape(name): json.loads(text) for name, text in found}


def own(page):
    """A page without the charting library's source."""
    return page.replace(PLOTLY, "")


def outside(page):
    """What a page refers to outside itself; the names of XML's vocabularies are no references."""
    return re.findall(
        r"""(?:src|href)\s*=\s*["'](?!\#)|url\((?!\#)|@import|https?://(?!www\.w3\.org)""", own(page)
    )
