"""Scripts of a project, rendered from the templates in this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2


def render(name: str, **facts: Any) -> str:
    """Return a rendered template; an unknown variable is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(**facts)
