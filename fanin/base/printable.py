"""Safe text for a terminal: control characters in untrusted text (labels, messages of peers) become escapes.

A command writes to a :class:`Printable` in place of stdout and stderr. Output that moves the cursor on purpose,
such as a progress bar, goes to :func:`terminal`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

#: Control characters except tab and line feed, marks of text direction, lone surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
#: Place in a cell at which a spreadsheet may see a formula begin: the cell's start, or the character after a
#: separator. Which character separates cells depends on a spreadsheet's locale. More than 64 spaces and quotes
#: count as a formula unread: each of 40,000 tabs would be followed by a search to the end.
_FORMULA = re.compile(r"""(?:^|(?<=[;,|\t\r\n]))(?=[\s"']{0,64}[=+\-@＝＋－＠]|[\s"']{65})|^(?=[\t\r])""")


def printable(text: str) -> str:
    r"""Return the text with an escape such as ``\x1b`` for each control character of a terminal."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def print_note(text: str) -> None:
    """Print a line to stderr with control characters as escapes, also outside :func:`printable_streams`."""
    print(printable(text), file=sys.stderr, flush=True)


def cell(text: str) -> str:
    """Return text as a cell of a CSV file in which no spreadsheet finds a formula."""
    return _FORMULA.sub("'", text)


class Printable:
    """Text stream that writes to ``stream`` and escapes control characters."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text with control characters as escapes."""
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def terminal() -> TextIO:
    """Return stderr without escaping, for output of fanin that moves the cursor."""
    return sys.stderr.stream if isinstance(sys.stderr, Printable) else sys.stderr


@contextlib.contextmanager
def printable_streams() -> Iterator[None]:
    """Replace stdout and stderr by printable streams inside the context; output to a closed one is lost."""
    streams = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        sys.stdout, sys.stderr = (
            cast("TextIO", stream if isinstance(stream, Printable) else Printable(stream or nowhere))
            for stream in streams
        )
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
