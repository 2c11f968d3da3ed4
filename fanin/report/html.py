"""HTML pages from templates: one document each with its style sheet, and Plotly if it has charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from fanin import __version__

Rows = Sequence[tuple[str, str]]  #: names and values
Tables = Mapping[str, Rows]  #: tables of names and values, by heading


def joined(tables: Tables, more: Tables) -> Tables:
    """Return the tables with the rows of ``more`` at the end of those with the same heading."""
    return {heading: [*tables.get(heading, ()), *more.get(heading, ())] for heading in {**tables, **more}}


def fill(template: str, **values: Any) -> str:
    """Fill one of this folder's templates; a ``Chart`` among the values becomes its figure."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fanin.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "version": __version__,
        "css": _file("report.css"),
        "plotly": lambda: _file("plotly/plotly-basic.min.js"),
        "script": lambda: _file("charts.js"),
    }
    return environment


def _file(name: str) -> str:
    return resources.files("fanin.report").joinpath(name).read_text(encoding="utf-8")
