"""Options of a run that resumes an earlier one (``--resume``).

``fanin train`` and ``fanin ring train`` use both functions. ``fanin cluster resume`` needs neither: it has no
options of a training, and reads the whole run from its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fanin.base.errors import InputError
from fanin.runs.option import Options, option_of, options_of

Table = TypeVar("Table", bound=Options)


def complete(options: Table, earlier: Mapping[str, Any]) -> Table:
    """Return the options with the earlier run's values for training options that are not given.

    - ``earlier``: values of the earlier run by name, as JSON; an option without a value keeps its default.
    """
    restored = {
        option.name: option.convert(earlier[option.name])
        for option in options_of(type(options))
        if option.training and option.name in earlier and option.name not in options.given
    }
    return replace(options, **restored)


def check_unchanged(
    table: type[Options], folder: Path, values: Mapping[str, Any], earlier: Mapping[str, Any]
) -> None:
    """Raise InputError that names the first option with another value than the earlier run's.

    - ``folder``: folder of the earlier run.
    - ``values``: values to compare by name, in the form of ``earlier``.
    - ``earlier``: values of the earlier run by name.
    """
    for name, value in values.items():
        earlier_value = earlier.get(name)
        if value != earlier_value:
            option = option_of(table, name)
            text = option.as_written if option.kind is bool else option.value_text
            raise InputError(f"{option.as_written(value)}: {folder} was trained with {text(earlier_value)}")
