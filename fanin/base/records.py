"""JSON and TOML files as records with typed fields: job.json, plans, files of runs.

A wrong field raises InputError with file, place and field. The checker of plans uses this module; it has no
knowledge of plans, so that the checker shares nothing with the solver.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from fanin.base.errors import InputError
from fanin.base.plain import MAX_FILE_BYTES, read_named, read_plain, read_regular

MAX_SIZE = 1 << 31  # maximum dimension; far above any device, and products fit a float
MAX_NUMBER = 1 << 63
MAX_DEPTH = 64  #: nested lists and objects; fanin's own files have fewer than ten levels
MAX_TOML = 1 << 20  #: bytes of a TOML file; users write these files by hand
_TOO_DEEP = f"values are nested deeper than {MAX_DEPTH}"
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
#: A dotted key that is too deep. ``tomllib`` takes time and memory by the square of a key's parts. A quote
#: after a backslash begins no part: a text of such quotes would be read to its end from each.
_DEEP_KEY = re.compile(rf"(?<![\w\\-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_DEPTH}}}")

T = TypeVar("T")


def parse_json(text: str | bytes) -> Any:
    """Return the value of untrusted JSON.

    Raises ValueError for text that is no JSON, and for values nested deeper than ``MAX_DEPTH``. Python reads
    almost a thousand levels, but may fail to write them again.
    """
    return _parse_limited(json.loads, text)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of an untrusted TOML file.

    Raises InputError of one line for a file that cannot be read, has more than ``MAX_TOML`` bytes, is no TOML,
    or has values nested deeper than ``MAX_DEPTH``.
    """
    try:
        text = read_named(path, MAX_TOML).decode("utf-8")
        if _DEEP_KEY.search(text):
            raise ValueError(_TOO_DEEP)
        return _parse_limited(tomllib.loads, text)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # no TOML, no UTF-8, numbers without end
        raise InputError(f"{path}: {error}") from None


def _parse_limited(parse: Callable[[T], Any], text: T) -> Any:
    try:
        value = parse(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            member
            for container in level
            if isinstance(container, (dict, list))
            for member in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def open_record(path: Path) -> Record:
    """Return the JSON object in a regular file of at most ``plain.MAX_FILE_BYTES`` bytes. Raises InputError."""
    try:
        document = parse_json(read_regular(path).decode())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from None
    except ValueError as error:  # no UTF-8, numbers without end, lists without end
        raise InputError(f"{path}: not JSON: {error}") from None
    return Record(str(path), "", document)


def read_object(
    path: Path | str, max_bytes: int = MAX_FILE_BYTES, folder: int | None = None
) -> dict[str, Any] | None:
    """Return the JSON object in a file that ``read_plain`` reads; None for any other file."""
    try:
        value = parse_json(read_plain(path, max_bytes, folder))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


class Record:
    """JSON object in a file. Every method raises InputError for a missing field, or a value of another type.

    Parameter of several methods:

    - ``default``: value of a missing field; None: the field must exist.
    """

    def __init__(self, file: str, place: str, value: object):
        self._file, self._place = file, place
        if not isinstance(value, dict):
            raise self.error(f"must be an object, not {_json_text(value)}")
        self.value: dict[str, Any] = value
        self._fields_read: set[str] = set()
        self._inner: list[Record] = []

    def error(self, cause: str) -> InputError:
        """Return an error about this object, for the caller to raise."""
        return InputError(f"{self._file}: {self._place + ': ' if self._place else ''}{cause}")

    def build(self, make: Callable[[], T]) -> T:
        """Return the result of ``make``. A ValueError in it becomes an InputError about this object."""
        try:
            return make()
        except ValueError as error:
            raise self.error(str(error)) from error

    def finish(self) -> None:
        """Raise InputError for fields that were never read, here and in inner records: misspelt names."""
        for child in self._inner:
            child.finish()
        if unread := [field for field in self.value if field not in self._fields_read]:
            raise self.error(f"{', '.join(map(_json_text, unread))} is not known here")

    def _take(self, field: str, default: Any = None) -> Any:
        self._fields_read.add(field)
        if field in self.value:
            return self.value[field]
        if default is None:
            raise self.error(f"{_json_text(field)} is missing")
        return default

    def _wrong_field(self, field: str, expected: str) -> InputError:
        return self.error(f"{_json_text(field)} must be {expected}, not {_json_text(self.value[field])}")

    def text(self, field: str, choices: Sequence[str] = (), default: str | None = None) -> str:
        """Return a non-empty string of one line, one of ``choices`` if they are given."""
        value = self._take(field, default)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise self._wrong_field(field, "a text of one line")
        if choices and value not in choices:
            raise self._wrong_field(field, f"one of {', '.join(choices)}")
        return value

    def optional_text(self, field: str) -> str | None:
        """Return a string, or None for null."""
        self._fields_read.add(field)
        return None if self.value.get(field, "") is None else self.text(field)

    def flag(self, field: str) -> bool:
        """Return a bool."""
        value = self._take(field)
        if not isinstance(value, bool):
            raise self._wrong_field(field, "true or false")
        return value

    def integer(self, field: str, low: int = 0, high: int = MAX_NUMBER, default: int | None = None) -> int:
        """Return an integer that is at least ``low`` and less than ``high``."""
        value = self._take(field, default)
        if not _is_integer(value, low, high):
            raise self._wrong_field(field, f"an integer in {low}…{high - 1}")
        return value

    def optional(self, field: str) -> int | None:
        """Return an integer that is at least 0, or None for null."""
        return None if self._take(field) is None else self.integer(field)

    def counts(self, required: Sequence[str] = ()) -> dict[str, int]:
        """Return all fields, which must be integers of at least 0; ``required``: fields that must exist."""
        return {field: self.integer(field) for field in (*required, *self.value)}

    def number(self, field: str, low: int = 0) -> Fraction:
        """Return a number that is at least ``low`` and less than ``MAX_NUMBER``."""
        value = self._take(field)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < MAX_NUMBER:
            raise self._wrong_field(field, f"a number of at least {low}")
        return Fraction(value)

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of strings of one line each."""
        value = self._take(field)
        if not isinstance(value, list) or not all(
            isinstance(item, str) and item.isprintable() for item in value
        ):
            raise self._wrong_field(field, "a list of texts of one line")
        return tuple(value)

    def integers(self, field: str, length: int, low: int = 1) -> tuple[int, ...]:
        """Return a list of ``length`` integers in ``low``…``MAX_SIZE``."""
        value = self._take(field)
        if not _is_list(value, length, low):
            raise self._wrong_field(field, f"a list of {length} integers in {low}…{MAX_SIZE}")
        return tuple(value)

    def lists(self, field: str, length: int) -> tuple[tuple[int, ...], ...]:
        """Return a list of lists of ``length`` integers in 1…``MAX_SIZE``."""
        value = self._take(field)
        if not isinstance(value, list) or not all(_is_list(item, length, 1) for item in value):
            raise self._wrong_field(field, f"a list of lists of {length} integers in 1…{MAX_SIZE}")
        return tuple(tuple(item) for item in value)

    def record(self, field: str) -> Record:
        """Return an object as a record."""
        return self._child(field, self._take(field))

    def records(self, field: str) -> list[Record]:
        """Return a list of objects as records."""
        value = self._take(field)
        if not isinstance(value, list):
            raise self._wrong_field(field, "a list")
        return [self._child(f"{field}[{n}]", item) for n, item in enumerate(value)]

    def _child(self, place: str, value: object) -> Record:
        self._inner.append(Record(self._file, f"{self._place}.{place}" if self._place else place, value))
        return self._inner[-1]


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < high


def _is_list(value: object, length: int, low: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == length
        and all(_is_integer(v, low, MAX_SIZE + 1) for v in value)
    )


def _json_text(value: object) -> str:
    """Return the beginning of a value's JSON; dates and long hexadecimal numbers of TOML have none."""
    try:
        return json.dumps(value, default=str)[:40]
    except ValueError:
        return "a number of very many digits"
