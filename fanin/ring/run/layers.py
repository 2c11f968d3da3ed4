"""Parser of ``--layers``: widths, or a file with them."""

from __future__ import annotations

import re
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.plain import read_named

_MAX_BYTES = 1 << 20  # of a file
_LIST = re.compile(r"\d+(,\d+)*", re.ASCII)
_WIDTH = re.compile(r"\d{1,9}", re.ASCII)


def is_list(text: str) -> bool:
    """Return whether a text is a list of widths, not a file's name."""
    return _LIST.fullmatch(text) is not None


def parse_layers(text: str) -> tuple[int, ...]:
    """Parse ``64,128,10``, or a file with such widths, separated by commas, blanks or newlines.

    Raises InputError that names the word that is no width and, for a file, its line.
    """
    if is_list(text):
        return _widths(text, f"--layers {text}")
    try:
        lines = read_named(Path(text), _MAX_BYTES).decode(errors="replace").splitlines()
    except FileNotFoundError as error:
        raise InputError(f"--layers {text}: neither widths, such as 64,128,10, nor a file") from error
    except OSError as error:
        raise InputError(f"{Path(text)}: cannot be read: {error.strerror or error}") from error
    widths = tuple(width for number, line in enumerate(lines, 1) for width in _widths(line, f"{text}:{number}"))
    if not widths:
        raise InputError(f"--layers {text}: the file has no widths")
    return widths


def widths_text(widths: tuple[int, ...]) -> str:
    """Return widths as text, in the form of ``--layers`` and ``run.json``."""
    return ",".join(map(str, widths))


def _widths(text: str, place: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    if wrong := [word for word in words if not _WIDTH.fullmatch(word)]:
        raise InputError(f"{place}: {wrong[0]!r} is not a width")
    return tuple(map(int, words))
