"""The preprocessor, over tokens: ``#include``, ``#define`` (with or without parameters), ``#if`` etc."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

from fanin.base.plain import open_regular
from fanin.sim.switch.embedded.errors import P4Error, Position, Refused, Unsupported
from fanin.sim.switch.embedded.lexer import MAX_WIDTH, Token, integer, tokens

BUNDLED_FILES = Path(__file__).parent / "include"
_BYTE_ORDER_MARK = "\ufeff"
MAX_TEXT = 8 << 20  #: maximum characters of a program's texts, including each included file
MAX_TOKENS = 1_000_000  #: maximum tokens of a program and its includes, and of both after the preprocessor
_MAX_INCLUDES = 256
_MAX_BITS = MAX_WIDTH  # maximum bits of a value in #if
_MAX_CONDITIONS = 256  # maximum nesting of #if
_MAX_DEPTH = 64  # maximum nesting of macros
_MAX_MACRO_TOKENS = 1_000_000  # maximum tokens made by all macros or given to them as arguments, each time
_MAX_MACRO_CHARACTERS = 1 << 24  # maximum characters of these tokens

_BINARY = {
    "||": (1, lambda a, b: int(bool(a or b))), "&&": (2, lambda a, b: int(bool(a and b))),
    "|": (3, lambda a, b: a | b), "^": (4, lambda a, b: a ^ b), "&": (5, lambda a, b: a & b),
    "==": (6, lambda a, b: int(a == b)), "!=": (6, lambda a, b: int(a != b)),
    "<": (7, lambda a, b: int(a < b)), ">": (7, lambda a, b: int(a > b)),
    "<=": (7, lambda a, b: int(a <= b)), ">=": (7, lambda a, b: int(a >= b)),
    "<<": (8, lambda a, b: a << b), ">>": (8, lambda a, b: a >> b),
    "+": (9, lambda a, b: a + b), "-": (9, lambda a, b: a - b), "*": (10, lambda a, b: a * b),
    "/": (10, lambda a, b: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)),  # towards 0, as in C
    "%": (10, lambda a, b: (abs(a) % abs(b)) * (-1 if a < 0 else 1)),
}  # fmt: skip
_UNARY = {"!": lambda a: int(not a), "-": lambda a: -a, "+": lambda a: a, "~": lambda a: ~a}
_MAX_SHIFT = 64  # maximum bits of a shift in #if


class _BundledName(str):
    """Name of a file of this package, in positions."""


@dataclass
class Macro:
    """A macro; ``parameters`` is None for one without parentheses."""

    parameters: list[str] | None
    body: list[Token]


class Preprocessor:
    """Turns a text and its includes into one sequence of tokens without ends of lines."""

    def __init__(self, include_dirs: Sequence[Path], defines: Mapping[str, str]):
        self._dirs = list(include_dirs)
        self._macros = {
            name: Macro(None, [t for t in tokens(str(text), "<define>") if t.type != "NEWLINE"])
            for name, text in defines.items()
        }
        self.included: list[str] = []  # names as written, in order
        self._read = self._read_tokens = 0  # characters and tokens of all texts
        self._macro_tokens = self._macro_characters = 0  # made by macros

    def run(self, text: str, file: str, folder: Path | None) -> list[Token]:
        """Return all tokens of ``text``; quoted includes are first searched in ``folder``."""
        check_text(text, file, self._read)
        self._read += len(text)
        output: list[Token] = []
        pending: list[Token] = []  # a macro's arguments may span several lines
        conditions: list[_Condition] = []
        for line in self._lines(text.removeprefix(_BYTE_ORDER_MARK), file):
            if not line:
                continue
            if line[0].text == "#":
                output += self._expand(pending)
                pending = []
                output += self._directive(line, conditions, folder)
            elif all(c.active for c in conditions):
                pending += _without_pragma(line)
            if len(output) + len(pending) > MAX_TOKENS:
                raise _too_many((output + pending)[MAX_TOKENS])
        output += self._expand(pending)
        if conditions:
            raise P4Error(conditions[-1].position, "#if without #endif")
        return output

    def _lines(self, text: str, file: str) -> Iterator[list[Token]]:
        """Yield the tokens of each line. Raises P4Error for more than ``MAX_TOKENS`` in all texts."""
        line: list[Token] = []
        for token in tokens(text, file):
            if token.type == "NEWLINE":
                yield line
                line = []
            else:
                self._read_tokens += 1
                if self._read_tokens > MAX_TOKENS:
                    raise _too_many(token)
                line.append(token)
        yield line

    def _directive(self, line: list[Token], conditions: list[_Condition], folder: Path | None) -> list[Token]:
        if len(line) == 1:
            return []
        name, operands, position = line[1].text, line[2:], line[1].position
        if name in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
            self._conditional(name, operands, position, conditions)
        elif not all(c.active for c in conditions):
            pass
        elif name == "include":
            return self._include(operands, position, folder)
        elif name == "define":
            self._define(operands, position)
        elif name == "undef":
            self._macros.pop(_macro_name(operands, position), None)
        elif name == "error":
            raise P4Error(position, "#error " + " ".join(t.text for t in operands))
        elif name not in ("line", "pragma", "warning") and line[1].type != "INT":  # INT: `# 12 "file"`
            raise Unsupported(position, f"the directive #{name}")
        return []

    def _conditional(
        self, name: str, operands: list[Token], position: Position, conditions: list[_Condition]
    ) -> None:
        is_outer_active = all(c.active for c in (conditions if name.startswith("if") else conditions[:-1]))
        if name.startswith("if"):
            if len(conditions) == _MAX_CONDITIONS:
                raise P4Error(position, f"#{name} nested deeper than {_MAX_CONDITIONS}")
            conditions.append(_Condition(position))
            holds = is_outer_active and self._holds(name, operands, position)
        elif not conditions or (conditions[-1].has_else and name != "endif"):
            raise P4Error(position, f"#{name} without #if")
        elif name == "endif":
            conditions.pop()
            return
        else:
            conditions[-1].has_else = name == "else"
            holds = (
                is_outer_active
                and not conditions[-1].has_been_active
                and (name == "else" or self._holds(name, operands, position))
            )
        conditions[-1].active = holds
        conditions[-1].has_been_active |= holds

    def _holds(self, name: str, operands: list[Token], position: Position) -> bool:
        """Return whether the condition of ``#if``, ``#elif``, ``#ifdef`` or ``#ifndef`` holds."""
        if name in ("ifdef", "ifndef"):
            return (_macro_name(operands, position) in self._macros) == (name == "ifdef")
        sequence: list[Token] = []
        words = iter(operands)
        for token in words:
            if token.text == "defined":
                word = next(words, None)
                if word and word.text == "(":
                    word = next(words, None)
                    next(words, None)
                is_defined = word is not None and word.text in self._macros
                sequence.append(Token("INT", str(int(is_defined)), token.position))
            else:
                sequence.append(token)
        return bool(_Arithmetic(self._expand(sequence), position).value())

    def _include(self, operands: list[Token], position: Position, folder: Path | None) -> list[Token]:
        if operands and operands[0].type == "STRING":
            name = operands[0].text[1:-1]
            candidates = ([folder / name] if folder else []) + [d / name for d in self._dirs]
        elif len(operands) > 2 and operands[0].text == "<":
            name = "".join(t.text for t in operands[1:-1])
            candidates = [d / name for d in self._dirs]
        else:
            raise P4Error(position, '#include takes <name> or "name"')
        # Declarations of this package replace the standard files, even if a copy is found.
        bundled = BUNDLED_FILES / Path(name).name
        if bundled.is_file():
            candidates.insert(0, bundled)
        path = next((c for c in candidates if c.is_file()), None)
        if path is None:
            raise Refused(
                position,
                f"#include of {name}: it is in no folder of -I, and of no architecture that fanin has",
            )
        self.included.append(name)
        if len(self.included) > _MAX_INCLUDES:
            raise P4Error(position, f"more than {_MAX_INCLUDES} includes")
        try:
            text = _read_include(path)
        except (OSError, UnicodeDecodeError) as error:
            raise P4Error(position, f"#include of {name}: {error}") from error
        return self.run(text, _BundledName(name) if path == bundled else str(path), path.parent)

    def _define(self, operands: list[Token], position: Position) -> None:
        if not operands or operands[0].type != "NAME":
            raise P4Error(position, "#define needs a name")
        name, body = operands[0], operands[1:]
        parameters = None
        # Parameters begin only with a parenthesis that touches the name.
        if (
            body
            and body[0].text == "("
            and body[0].position == name.position._replace(column=name.position.column + len(name.text))
        ):
            end = next((i for i, t in enumerate(body) if t.text == ")"), None)
            if end is None:
                raise P4Error(position, "#define without )")
            parameters = [t.text for t in body[1:end] if t.text != ","]
            body = body[end + 1 :]
        if "##" in (body[0].text, body[-1].text) if body else False:
            raise P4Error(position, "#define: ## needs a token on each side")
        self._macros[name.text] = Macro(parameters, body)

    def _expand(self, sequence: list[Token], active: frozenset[str] = frozenset()) -> list[Token]:
        """Return ``sequence`` with its macros replaced, except those in ``active``, which are in progress."""
        output: list[Token] = []
        index = 0
        while index < len(sequence):
            token = sequence[index]
            index += 1
            macro = self._macros.get(token.text) if token.type == "NAME" else None
            if macro is None or token.text in active:
                output.append(token)
                continue
            body = macro.body
            if macro.parameters is not None:
                if index >= len(sequence) or sequence[index].text != "(":
                    output.append(token)
                    continue
                arguments, index = _arguments(sequence, index, token)
                if len(arguments) != len(macro.parameters) and (macro.parameters or arguments != [[]]):
                    raise P4Error(token.position, f"{token.text} takes {len(macro.parameters)} arguments")
                for argument in arguments:
                    self._spend(argument, token)
                arguments_by_name = dict(zip(macro.parameters, arguments, strict=False))
                values = {name: self._expand(argument, active) for name, argument in arguments_by_name.items()}
                body = self._substitute(body, arguments_by_name, values, token)
            body = self._paste(body)
            self._spend(body, token)
            if len(active) > _MAX_DEPTH:
                raise P4Error(token.position, f"macros nested deeper than {_MAX_DEPTH}")
            output += self._expand([t.at_position(token.position) for t in body], active | {token.text})
        return output

    def _substitute(
        self, body: list[Token], arguments: dict[str, list[Token]], values: dict[str, list[Token]], macro: Token
    ) -> list[Token]:
        """Return the body of a macro with its arguments: text after #, unexpanded beside ##, else expanded."""
        output: list[Token] = []
        index = 0
        while index < len(body):
            token = body[index]
            neighbours = [t.text for t in (*body[max(index - 1, 0) : index], *body[index + 1 : index + 2])]
            if token.text == "#":
                index += 1
                if index >= len(body) or body[index].text not in arguments:
                    raise P4Error(macro.position, f"{macro.text}: # needs a parameter behind it")
                text = _token_text(arguments[body[index].text])
                output.append(Token("STRING", f'"{text}"', token.position))
                self._spend(output[-1:], macro)
            elif token.text in arguments:
                argument = arguments[token.text] if "##" in neighbours else values[token.text]
                self._spend(argument, macro)
                output += argument
            else:
                output.append(token)
            index += 1
        return output

    def _paste(self, body: list[Token]) -> list[Token]:
        """Return the body with each ``a ## b`` as one token."""
        if not any(token.text == "##" for token in body):
            return body
        output: list[Token] = []
        paste = False
        for token in body:
            if token.text == "##" and token.type != "STRING":
                paste = True
            elif paste and output:
                text = output[-1].text + token.text
                made = islice(tokens(text, token.position.file), _MAX_MACRO_TOKENS + 1)
                pasted = [t for t in made if t.type != "NEWLINE"]
                self._spend(pasted, token)
                # Like cpp, keep several tokens if the text is not one token.
                output[-1:] = [new.at_position(token.position) for new in pasted]
                paste = False
            else:
                output.append(token)
                paste = False
        return output

    def _spend(self, new_tokens: Sequence[Token], macro: Token) -> None:
        """Count the tokens that a macro makes. Raises P4Error for too many or too long ones."""
        self._macro_tokens += 1 + len(new_tokens)
        self._macro_characters += sum(len(token.text) for token in new_tokens)
        if self._macro_tokens > _MAX_MACRO_TOKENS or self._macro_characters > _MAX_MACRO_CHARACTERS:
            limits = f"{_MAX_MACRO_TOKENS:,} tokens or {_MAX_MACRO_CHARACTERS:,} characters"
            raise P4Error(macro.position, f"macros that grow to more than {limits}")


@dataclass
class _Condition:
    """An open #if."""

    position: Position
    active: bool = False  # whether this branch is read
    has_been_active: bool = False  # whether a branch has been read
    has_else: bool = False  # whether #else has been seen


class _Arithmetic:
    """Evaluates the expression of an ``#if`` after macro replacement, by precedence climbing."""

    def __init__(self, sequence: list[Token], position: Position):
        self._tokens = sequence
        self._position = position
        self._index = 0

    def value(self) -> int:
        """Return the value of all tokens."""
        value = self._choice()
        if self._index != len(self._tokens):
            raise P4Error(self._position, f"#if: unexpected {self._tokens[self._index].text}")
        return value

    def _text(self) -> str:
        """Return the text of the next token; the lexer splits ``>>`` for types, here it is one token."""
        texts = [token.text for token in self._tokens[self._index : self._index + 2]]
        if texts == [">", ">"] and self._touching():
            return ">>"
        return texts[0] if texts else ""

    def _touching(self) -> bool:
        first, second = (token.position for token in self._tokens[self._index : self._index + 2])
        return second == first._replace(column=first.column + 1)

    def _next(self) -> Token:
        if self._index >= len(self._tokens):
            raise P4Error(self._position, "#if: an operand is missing")
        self._index += 1
        return self._tokens[self._index - 1]

    def _choice(self) -> int:
        condition = self._binary(0)
        if self._text() != "?":
            return condition
        self._index += 1
        yes = self._choice()
        self._expect(":")
        no = self._choice()
        return yes if condition else no

    def _expect(self, text: str) -> None:
        if self._index >= len(self._tokens) or self._next().text != text:
            raise P4Error(self._position, f"#if: {text} is missing")

    def _binary(self, min_level: int) -> int:
        left = self._operand()
        while operator := self._text():
            level, apply = _BINARY.get(operator, (-1, None))
            if apply is None or level <= min_level:
                break
            self._index += 2 if operator == ">>" else 1
            right = self._binary(level)
            if operator in ("/", "%") and right == 0:
                raise P4Error(self._position, f"#if: {operator} by 0")
            if operator in ("<<", ">>") and not 0 <= right <= _MAX_SHIFT:
                raise P4Error(self._position, f"#if: a shift by {right}; it must be 0 to {_MAX_SHIFT}")
            left = apply(left, right)
            if left.bit_length() > _MAX_BITS:
                raise P4Error(self._position, f"#if: a value of more than {_MAX_BITS:,} bits")
        return left

    def _operand(self) -> int:
        token = self._next()
        if apply := _UNARY.get(token.text):
            return apply(self._operand())
        if token.text == "(":
            inner = self._choice()
            self._expect(")")
            return inner
        if token.type == "INT":
            return integer(token)[0]
        if token.type == "NAME":
            return 0  # as in C: a name without a definition
        raise P4Error(token.position, f"#if: unexpected {token.text}")


def read_text(path: Path) -> str:
    """Return the text of a file, cut off after one character more than ``check_text`` allows.

    Raises OSError, UnicodeDecodeError.
    """
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_TEXT + 1)


def is_bundled(position: Position) -> bool:
    """Return whether a position is in a text of this package, also if a program's file has the same name."""
    return isinstance(position.file, _BundledName)


def _read_include(path: Path) -> str:
    """Return the text of a regular file that a program includes, cut off as in ``read_text``.

    A file without a size counts as empty: it may be one of /proc, where reading may block or remove a message.
    """
    with TextIOWrapper(open_regular(path), encoding="utf-8") as file:
        return file.read(MAX_TEXT + 1) if os.fstat(file.fileno()).st_size else ""


def check_text(text: str, file: str, earlier: int = 0) -> None:
    """Raise P4Error for a text that is too long; ``earlier``: number of characters of earlier texts."""
    if earlier + len(text) > MAX_TEXT:
        line = text.count("\n", 0, MAX_TEXT - earlier) + 1
        raise P4Error(Position(file, line, 1), f"more than {MAX_TEXT:,} characters, with all includes")


def _token_text(parts: list[Token]) -> str:
    """Return the text of tokens for a string, with one space for any space between them."""
    text = ""
    for previous, token in zip([None, *parts], parts, strict=False):
        if previous is not None:
            end = previous.position._replace(column=previous.position.column + len(previous.text))
            text += "" if end == token.position else " "
        text += token.text
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _too_many(token: Token) -> P4Error:
    return P4Error(token.position, f"more than {MAX_TOKENS:,} tokens")


def _without_pragma(line: list[Token]) -> list[Token]:
    """Return ``line`` without ``@pragma``, which ends with its line and never changes a program's behaviour."""
    for index in range(len(line) - 1):
        if line[index].text == "@" and line[index + 1].text == "pragma":
            return line[:index]
    return line


def _macro_name(operands: list[Token], position: Position) -> str:
    if not operands or operands[0].type != "NAME":
        raise P4Error(position, "a name is missing")
    return operands[0].text


def _arguments(sequence: list[Token], index: int, macro: Token) -> tuple[list[list[Token]], int]:
    """Return the arguments of a macro with its ``(`` at ``index``, and the index after its ``)``."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    for current in range(index, len(sequence)):
        token = sequence[current]
        if token.text in "([{":
            depth += 1
        elif token.text in ")]}":
            depth -= 1
        if depth == 0:
            return arguments, current + 1
        if depth == 1 and token.text == ",":
            arguments.append([])
        elif depth > 1 or current > index:
            arguments[-1].append(token)
    raise P4Error(macro.position, f"{macro.text}: ) is missing")
