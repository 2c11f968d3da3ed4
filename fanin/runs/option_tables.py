"""Tables of a run's options on its page, derived from the options table (``fanin.runs.option``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fanin.report.html import Tables
from fanin.report.unit import quantity
from fanin.runs.option import Option, Options, Trait, option_flag, options_of

UNTITLED = "Run"  #: heading of the options that help lists without a title
_ABSENT: tuple[Any, ...] = (None, "", [], ())  # values of options that are not set


def option_tables(table: type[Options], values: Mapping[str, Any], lacking: Collection[Trait] = ()) -> Tables:
    """Return name and value of each option as text, by heading.

    Headings are the titles of help without the condition after a comma. Options without a value, of a hidden
    group, or of a trait that the run lacks are omitted.

    - ``values``: JSON values by name, such as ``configuration`` of run.json.
    - ``lacking``: traits that the run lacks.
    """
    tables: dict[str, list[tuple[str, str]]] = {}
    for option in options_of(table):
        value = values.get(option.name)
        if value not in _ABSENT and option.group.shown and option.trait not in lacking:
            row = option_flag(option.name).removeprefix("--"), _text(option, value)
            tables.setdefault(_heading(option.group.title), []).append(row)
    return tables


def _heading(title: str) -> str:
    name = title.partition(",")[0] or UNTITLED
    return f"{name[0].upper()}{name[1:]}"


def _text(option: Option, value: Any) -> str:
    """Return a value with its unit; a repeatable option's values separated by commas."""
    if isinstance(value, list | tuple):
        return ", ".join(_text(option, item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return quantity(value, option.unit) if isinstance(value, int | float) else str(value)
