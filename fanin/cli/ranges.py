"""Options that are numbers within limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fanin.base.errors import InputError

#: Inclusive limits of options' values, by name.
Ranges = Mapping[str, tuple[float, float]]


def integer(text: str) -> int:
    """Parse a number in Python's notation, such as hexadecimal; an argparse ``type``."""
    return int(text, 0)


def check_ranges(values: Mapping[str, Any], ranges: Ranges) -> None:
    """Raise InputError for the first value outside its range; None is in every range."""
    for name, (low, high) in ranges.items():
        if values[name] is not None and not low <= values[name] <= high:
            limits = f"[{_value_text(low)}, {_value_text(high)}]"
            raise InputError(f"{name.replace('_', '-')} must be in {limits}, not {_value_text(values[name])}")


def _value_text(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
