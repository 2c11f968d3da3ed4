"""Classification of tokens for the grammar: which names are types, which ``<`` opens type arguments.

P4 needs it for parsing: ``(a) - b`` is a cast or a difference. All names are declared before their use, so one
forward pass that keeps scopes is enough. The grammar's keywords that apply in one place only (``key``,
``apply`` ...) are ordinary names elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fanin.sim.switch.embedded.errors import P4Error, Position, Unsupported
from fanin.sim.switch.embedded.lexer import KEYWORDS, Token

_PREFIX = {"!", "~"}
_INFIX = {
    "*", "/", "%", "++", "<<", "==", "!=", "<=", ">=", "<", ">", "&&", "||", "&", "^", "|", "|+|", "|-|", "&&&",
    "..",
}  # fmt: skip
_ASSIGN = {
    "<<=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "|+|=", "|-|=",
}  # fmt: skip
_BASE = {"bool", "error", "string", "void", "int", "bit"}
_DECLARING = {"header", "struct", "header_union", "control", "parser", "package"}
_OPERAND_ENDS = {"NAME", "TYPE", "THIS", ")", "]", "ERROR"}
_CLOSE = {"(": ")", "[": "]", "{": "}"}
_DEPTH = 256  # maximum nesting of braces
_MAX_TYPE_PARAMETERS = 64  # maximum lists of type parameters that apply at one place
_UNSUPPORTED = {"value_set": "a value_set", "list": "a list type"}


@dataclass
class _Scope:
    """Names of one scope; a scope of type parameters ends with their declaration."""

    depth: int
    of_parameters: bool = False
    types: dict[str, bool] = field(default_factory=dict)  # False: hidden by a declaration other than a type


class Classifier:
    """Classifies the tokens of a program in one pass, by :meth:`run`; an instance serves one program."""

    def __init__(self, sequence: list[Token]):
        self._input = [t for t in sequence if t.type != "NEWLINE"]
        self._index = 0
        self._output: list[Token] = []
        self._depth = 0  # nesting of braces
        self._parens = 0  # nesting of parentheses and brackets
        self._scopes = [_Scope(0)]
        self._generic: set[str] = set()  # functions and methods with type parameters
        self._open_lists: list[int] = []  # nesting of parentheses at each open type-argument list
        self._entries_depth: int | None = None  # brace depth of the current table entries
        self._typedef = False  # inside ``typedef`` or ``type``, which declares its last name as a type
        self._parameters: list[str] = []  # parameters that hide types inside the next braces
        # Whether a ``<`` opens type arguments of a call, by the index of the token after it.
        self._calls: dict[int, bool] = {}

    def run(self) -> list[Token]:
        """Return the tokens, classified; each annotation is one token."""
        while self._index < len(self._input):
            token = self._input[self._index]
            self._index += 1
            if token.type == "STRAY":
                raise P4Error(token.position, f"unexpected character {token.text!r}")
            if token.text == "@" and token.type == "OP":
                self._annotation(token)
            elif token.type == "NAME":
                self._name(token)
            elif token.type == "OP":
                self._operator(token)
            else:
                self._emit(token, token.type)
        return self._output

    def _emit(self, token: Token, kind: str) -> None:
        self._output.append(Token(kind, token.text, token.position))

    def _text(self, distance: int = 0) -> str:
        """Return the text of the token ``distance`` tokens after the next one; empty after the last token."""
        index = self._index + distance
        return self._input[index].text if index < len(self._input) else ""

    def _annotation(self, sign: Token) -> None:
        name = self._input[self._index] if self._index < len(self._input) else sign
        self._index += 1
        body: list[Token] = []
        if self._text() in ("(", "["):
            body = self._balanced(sign.position)
        self._output.append(Token("ANNOTATION", name.text, sign.position, body))

    def _balanced(self, position: Position) -> list[Token]:
        """Return the tokens within the parentheses that open here."""
        expected: list[str] = []
        start = self._index
        while self._index < len(self._input):
            text = self._input[self._index].text
            self._index += 1
            if text in _CLOSE:
                expected.append(_CLOSE[text])
            elif text in _CLOSE.values() and expected.pop() != text:
                break
            if not expected:
                return self._input[start + 1 : self._index - 1]
        raise P4Error(position, "annotation without its closing parenthesis")

    def _name(self, token: Token) -> None:
        text = token.text
        if text in _UNSUPPORTED and self._text() == "<":
            raise Unsupported(token.position, _UNSUPPORTED[text])
        if text == "match_kind" and self._text() != "{":
            raise Unsupported(token.position, "match_kind as a type")
        if text in KEYWORDS:
            self._keyword(token)
        elif text == "_":
            self._emit(token, "UNDERSCORE")
        elif self._is_soft_keyword(text):
            if text == "entries":
                self._entries_depth = self._depth + 1
            self._typedef |= text == "type"
            self._emit(token, "INT_TYPE" if text == "int" else text.upper())
        else:
            self._identifier(token)

    def _is_soft_keyword(self, text: str) -> bool:
        """Return whether a name is a keyword at this place, such as ``key`` before ``= {``."""
        next_text = self._text()
        if text == "apply":
            return next_text == "{" and self._previous() != "."
        if text in ("key", "actions", "entries"):
            return next_text == "=" and self._text(1) == "{"
        if text == "state":
            return self._text(1) == "{" and self._previous() in ("}", ";", "{", "ANNOTATION")
        if text == "type":
            return self._depth == 0 and self._parens == 0 and next_text != ";"
        return text == "priority" and self._entries_depth is not None and next_text in ("=", "(")

    def _keyword(self, token: Token) -> None:
        text = token.text
        self._emit(token, "INT_TYPE" if text == "int" else text.upper())
        if text in _DECLARING:
            self._declare(self._text())
        elif text == "enum":
            # enum NAME, or enum bit<8> NAME: the name is the token before the brace.
            distance = 0
            # A second "enum" ends the search, too, so that no token is read twice.
            while self._text(distance) not in ("{", "}", ";", "enum", ""):
                distance += 1
            self._declare(self._text(distance - 1))
        elif text == "extern" and (self._text(1) == "{" or self._is_generic_block()):
            self._declare(self._text())
        elif text == "typedef":
            self._typedef = True

    def _is_generic_block(self) -> bool:
        """Return whether ``NAME < ... > {`` follows."""
        end = self._end_of_parameters(1)
        return end is not None and self._text(end) == "{"

    def _end_of_parameters(self, distance: int) -> int | None:
        """Return the distance to the token after ``< NAME , NAME >``; None without such tokens.

        ``distance``: that of the ``<``, as for :meth:`_text`.
        """
        if self._text(distance) != "<":
            return None
        distance += 1
        while True:
            index = self._index + distance
            if (
                index >= len(self._input)
                or self._input[index].type != "NAME"
                or self._text(distance) in KEYWORDS
            ):
                return None
            if self._text(distance + 1) == ">":
                return distance + 2
            if self._text(distance + 1) != ",":
                return None
            distance += 2

    def _declare(self, name: str, is_type: bool = True) -> None:
        self._scopes[-1].types[name] = is_type

    def _is_type(self, name: str) -> bool:
        return next((s.types[name] for s in reversed(self._scopes) if name in s.types), False)

    def _previous(self) -> str:
        return self._output[-1].type if self._output and self._output[-1].type != "OP" else ""

    def _identifier(self, token: Token) -> None:
        """Emit a name as TYPE or NAME, and note the declaration that it may be.

        The cases, in order:

        - a generic declaration, such as ``f`` in ``f<T>(``
        - a type parameter that stands before its declaration
        - a member after a dot
        - a type
        - any other name

        A name after a type is a declaration. A declaration hides a type of the same name: a parameter in the
        next braces, any other in its scope.
        """
        text = token.text
        previous = self._output[-1].type if self._output else ""
        end = self._end_of_parameters(0)
        if end is not None and self._is_declaration(previous) and self._text(end) in ("(", "{", ";"):
            self._emit(token, "NAME")
            if self._text(end) == "(" and previous.lower() not in _DECLARING:
                self._generic.add(text)
            self._open_parameters()
            return
        if self._returned_parameter(text):
            self._emit(token, "TYPE")
            return
        if self._is_member(previous):
            self._emit(token, "NAME")
            return
        follows_type = previous in ("TYPE", "GT_ARGS", "]") or previous in {b.upper() for b in _BASE}
        if self._is_type(text) and not (follows_type and self._text() in ("=", ";", ",", ")")):
            if previous == "." and not any(text in scope.types for scope in self._scopes[1:]):
                self._output.pop()  # .T is T if no other declaration hides it
            self._emit(token, "TYPE")
        elif previous == "." or not self._typedef:
            self._emit(token, "NAME")
            if follows_type and self._is_type(text):
                if self._parens:
                    self._parameters.append(text)
                else:
                    self._declare(text, False)
        else:
            self._emit(token, "NAME")
        if self._typedef and self._text() == ";":
            self._declare(text)
            self._typedef = False

    def _is_member(self, previous: str) -> bool:
        """Return whether the name is a member after ``.``, and not a name of the outermost scope."""
        return previous == "." and len(self._output) > 1 and self._output[-2].type in _OPERAND_ENDS

    def _is_declaration(self, previous: str) -> bool:
        return previous in ("TYPE", "GT_ARGS", "]") or previous.lower() in _BASE | _DECLARING | {"extern"}

    def _returned_parameter(self, text: str) -> bool:
        """Return whether this is the T of ``T lookahead<T>()``, which comes before its declaration."""
        if self._is_type(text) or self._index >= len(self._input) or self._input[self._index].type != "NAME":
            return False
        end = self._end_of_parameters(1)
        if end is None or self._text(end) != "(":
            return False
        return text in {self._text(i) for i in range(2, end)}

    def _open_parameters(self) -> None:
        """Emit the ``< T, U >`` of a declaration; its names are types until the declaration ends."""
        if sum(scope.of_parameters for scope in self._scopes) == _MAX_TYPE_PARAMETERS:
            raise Unsupported(self._input[self._index].position, "a text nested this deep")
        scope = _Scope(self._depth, of_parameters=True)
        self._scopes.append(scope)
        while True:
            token = self._input[self._index]
            self._index += 1
            if token.type == "NAME":
                scope.types[token.text] = True
                self._emit(token, "TYPE")
            elif token.text == ",":
                self._emit(token, ",")
            elif token.text == "<":
                self._emit(token, "LT_ARGS")
            else:
                self._emit(token, "GT_ARGS")
                return

    def _operator(self, token: Token) -> None:
        text = token.text
        if text == "<" and self._opens_arguments():
            self._open_lists.append(self._parens)
            self._emit(token, "LT_ARGS")
        elif text == ">" and self._open_lists and self._open_lists[-1] == self._parens:
            self._open_lists.pop()
            self._emit(token, "GT_ARGS")
        elif text == ">" and self._touches(token, ">"):
            self._index += 1
            self._output.append(Token("INFIX", ">>", token.position))
        elif text == ">" and self._touches(token, ">="):
            self._index += 1
            self._output.append(Token("ASSIGN", ">>=", token.position))
        elif text in _PREFIX:
            self._emit(token, "PREFIX")
        elif text in _INFIX:
            self._emit(token, "INFIX")
        elif text in _ASSIGN:
            self._emit(token, "ASSIGN")
        else:
            self._bracket(token)
            self._emit(token, text)

    def _touches(self, token: Token, text: str) -> bool:
        position = token.position
        return self._text() == text and self._input[self._index].position == position._replace(
            column=position.column + 1
        )

    def _opens_arguments(self) -> bool:
        if not self._output:
            return False
        previous = self._output[-1]
        return previous.type in ("TYPE", "BIT", "INT_TYPE", "VARBIT", "TUPLE", "VALUE_SET") or (
            previous.type == "NAME" and previous.text in self._generic and self._is_call()
        )

    def _is_call(self) -> bool:
        """Return whether the ``<`` before here opens type arguments of a call, and is not a comparison."""
        if self._index not in self._calls:  # look once at the whole text up to the next ; { or }
            open_indices = [self._index]
            for index in range(self._index, len(self._input)):
                text = self._input[index].text
                if text in (";", "{", "}"):
                    break
                if text == "<":
                    open_indices.append(index + 1)
                elif text == ">" and open_indices:
                    self._calls[open_indices.pop()] = self._text(index + 1 - self._index) == "("
            self._calls |= dict.fromkeys(open_indices, False)
        return self._calls[self._index]

    def _bracket(self, token: Token) -> None:
        text = token.text
        if text in "([":
            self._parens += 1
        elif text in ")]":
            self._parens -= 1
        elif text == "{":
            if self._depth == _DEPTH:
                raise Unsupported(token.position, "a text nested this deep")
            self._depth += 1
            self._scopes.append(_Scope(self._depth, types=dict.fromkeys(self._parameters, False)))
            self._parameters.clear()
        elif text == "}":
            if self._depth == 0:
                raise P4Error(token.position, "unexpected }")
            if self._entries_depth == self._depth:
                self._entries_depth = None
            while self._scopes[-1].depth >= self._depth and len(self._scopes) > 1:
                self._scopes.pop()
            self._depth -= 1
            self._end_parameters()
        elif text == ";" and not self._parens:
            self._parameters.clear()
            self._end_parameters()

    def _end_parameters(self) -> None:
        while self._scopes[-1].of_parameters and self._scopes[-1].depth == self._depth:
            self._scopes.pop()
