"""Tables of a benchmark's page, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table and its title; empty without rows."""
    if not rows:
        return []
    lines = [" | ".join(map(str, row)) for row in (columns, ["---"] * len(columns), *rows)]
    return [f"## {title}\n", *(f"| {line} |" for line in lines), ""]
