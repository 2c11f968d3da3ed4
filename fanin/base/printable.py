"""Text for a terminal. Control characters in text from outside (labels, messages of peers) become escapes.

A command writes to a :class:`Printable` in place of stdout and stderr. Output that moves the cursor on purpose,
such as a progress bar, goes to :func:`terminal`.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

#: Control characters but tab and line feed, marks that turn the direction of text, lone surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
#: Place in a cell at which a spreadsheet may see a formula begin: the cell's start, or the character after a
#: separator. Which character separates cells depends on a spreadsheet's locale.
_FORMULA = re.compile(r"""(?:^|(?<=[;,|\t\r\n]))(?=[\s"']*[=+\-@＝＋－＠])|^(?=[\t\r])""")


def printable(text: str) -> str:
    r"""The text with an escape, ``\x1b``, for each character that would control a terminal."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def cell(text: str) -> str:
    """Return a text as a cell of a CSV file: no spreadsheet takes it, or a part of it, for a formula."""
    return _FORMULA.sub("'", text)


class Printable:
    """Text stream that passes printable characters on to ``stream``, and escapes the others."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text, controls as escapes."""
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def terminal() -> TextIO:
    """Return stderr without escaping, for text of fanin that moves a terminal's cursor."""
    return sys.stderr.stream if isinstance(sys.stderr, Printable) else sys.stderr


@contextlib.contextmanager
def printable_streams() -> Iterator[None]:
    """While inside, stdout and stderr are printable."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        cast("TextIO", stream if isinstance(stream, Printable) else Printable(stream)) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
