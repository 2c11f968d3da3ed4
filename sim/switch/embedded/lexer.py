"""Tokens of a text. Comments and continued lines vanish here; ends of lines stay, for the preprocessor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fanin.sim.switch.embedded.errors import P4Error, Position

KEYWORDS = {
    "abstract", "action", "bool", "bit", "break", "const", "continue", "control", "default", "else", "enum",
    "error", "exit", "extern", "false", "for", "header", "header_union", "if", "in", "inout", "int",
    "match_kind", "out", "package", "parser", "return", "select", "string", "struct", "switch", "table",
    "this", "transition", "true", "tuple", "typedef", "value_set", "varbit", "void",
}  # fmt: skip

#: Maximum bits of a value; far more than any target has. Python converts no more than 14,284 to decimal digits.
MAX_WIDTH = 1 << 13
_DIGITS = MAX_WIDTH // 4  # maximum digits of a number
_PATTERN = re.compile(
    r"""
    (?P<SPACE>(?:[ \t\r\f\v]|\\\r?\n|//[^\n]*|/\*.*?\*/)+)
  | (?P<OPEN>/\*)
  | (?P<NEWLINE>\n)
  | (?P<INT>(?:\d+[ws])?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[dD][0-9_]+|\d[\d_]*)(?![A-Za-z_]))
  | (?P<NAME>[A-Za-z_]\w*)
  | (?P<STRING>"(?:\\.|[^"\\\n])*")
  | (?P<OP>\|\+\|=|\|-\|=|&&&|\|\+\||\|-\||<<=|\.\.\.|\.\.|\#\#|\+\+|==|!=|<=|>=|&&|\|\||<<|\+:
        |\+=|-=|\*=|/=|%=|&=|\|=|\^=|[-+*/%&|^~!<>=?:;,.(){}\[\]@\#])
  | (?P<STRAY>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


@dataclass(slots=True)
class Token:
    """A token; ``type`` is its name in the grammar, and ``value`` the body of an annotation."""

    type: str
    text: str
    position: Position
    value: Any = None

    start_pos = line = column = end_line = end_column = end_pos = 0  # lark asks the last token for these

    def at_position(self, position: Position) -> Token:
        """Return the same token at another position, for the use of a macro."""
        return replace(self, position=position)


def tokens(text: str, file: str) -> Iterator[Token]:
    """Yield the tokens of ``text``: NAME, INT, STRING, OP, NEWLINE, and STRAY for a character unknown to P4.

    Raises P4Error for a comment without an end.
    """
    line, start = 1, 0
    for match in _PATTERN.finditer(text):
        kind = str(match.lastgroup)
        if kind != "SPACE":
            position = Position(file, line, match.start() - start + 1)
            if kind == "OPEN":
                raise P4Error(position, "a comment that does not end: */ is missing")
            yield Token(kind, match.group(), position)
        if breaks := match.group().count("\n"):
            line += breaks
            start = text.rfind("\n", 0, match.end()) + 1


def integer(token: Token) -> tuple[int, int | None, bool]:
    """Return value, width (None: unlimited) and signedness of an INT token.

    Raises P4Error if the value does not fit the token's width.
    """
    match = re.fullmatch(r"(?:(\d+)([ws]))?(0[xXbBoOdD])?([0-9a-fA-F_]+)", token.text)
    assert match, token
    digits = match[4].replace("_", "")
    base = {"x": 16, "b": 2, "o": 8}.get((match[3] or "0d")[1].lower(), 10)
    if not digits:
        raise P4Error(token.position, f"{token.text}: a number without digits")
    if len(digits) > _DIGITS:
        raise P4Error(token.position, f"a number of more than {_DIGITS} digits")
    value = int(digits, base)
    if not match[1]:
        return value, None, False
    if len(match[1]) > _DIGITS or int(match[1]) > MAX_WIDTH:
        raise P4Error(token.position, f"a number of more than {MAX_WIDTH} bits")
    width, signed = int(match[1]), match[2] == "s"
    if (width == 0 and value) or width < signed + 0:
        raise P4Error(token.position, f"{token.text}: a number of {width} bits")
    # p4c cuts a value that does not fit, with a warning. A warning without a reader means a wrong result, so
    # such a value is refused here.
    if value >> (width - 1 if signed else width):
        raise P4Error(token.position, f"{token.text}: the value does not fit in {width} bits")
    return value, width, signed
