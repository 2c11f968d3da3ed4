"""Pages from templates: one HTML document each, with its style sheet inside."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2

from fanin import __version__

Rows = Sequence[tuple[str, str]]


def fill(template: str, **values: Any) -> str:
    """One of this folder's templates with its values, the style sheet and the version in it."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fanin.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = resources.files("fanin.report").joinpath("report.css").read_text()
    return environment.get_template(template).render(version=__version__, css=css, **values)
