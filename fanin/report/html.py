"""HTML pages from templates: one document each with its style sheet, and Plotly if it has charts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from fanin import __version__

Rows = Sequence[tuple[str, str]]


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
