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
_DECLARES = {"header", "struct", "header_union", "control", "parser", "package"}
_ENDS_OPERAND = {"NAME", "TYPE", "THIS", ")", "]", "ERROR"}
_CLOSE = {"(": ")", "[": "]", "{": "}"}
_DEPTH = 256  # maximum nesting of braces
_MOST_PARAMETERS = 64  # maximum lists of type parameters that apply at one place
_REFUSED = {"value_set": "a value_set", "list": "a list type"}


@dataclass
class _Scope:
    """Names of one scope; a scope of type parameters ends with their declaration."""

    depth: int
    of_parameters: bool = False
    types: dict[str, bool] = field(default_factory=dict)  # False: hidden by a declaration other than a type


class Classifier:
    """One pass over a program's tokens."""

    def __init__(self, sequence: list[Token]):
        self._in = [t for t in sequence if t.type != "NEWLINE"]
        self._at = 0
        self._out: list[Token] = []
        self._depth = 0  # nesting of braces
        self._parens = 0
        self._scopes = [_Scope(0)]
        self._generic: set[str] = set()  # functions and methods with type parameters
        self._open: list[int] = []  # nesting of parentheses at each open type-argument list
        self._entries: int | None = None  # brace depth of the current table entries
        self._typedef = False
        self._parameters: list[str] = []  # parameters that hide types inside the next braces
        self._calls: dict[
            int, bool
        ] = {}  # whether a ``<`` opens type arguments of a call, by the place after it

    def run(self) -> list[Token]:
        """Return the tokens, classified; each annotation is one token."""
        while self._at < len(self._in):
            token = self._in[self._at]
            self._at += 1
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
        return self._out

    def _emit(self, token: Token, kind: str) -> None:
        self._out.append(Token(kind, token.text, token.position))

    def _text(self, ahead: int = 0) -> str:
        """Return the text of the token ``ahead`` tokens further."""
        index = self._at + ahead
        return self._in[index].text if index < len(self._in) else ""

    def _annotation(self, at: Token) -> None:
        name = self._in[self._at] if self._at < len(self._in) else at
        self._at += 1
        body: list[Token] = []
        if self._text() in ("(", "[") and self._text():
            body = self._balanced(at.position)
        self._out.append(Token("ANNOTATION", name.text, at.position, body))

    def _balanced(self, position: Position) -> list[Token]:
        """Return the tokens within the parentheses that open here."""
        expected: list[str] = []
        start = self._at
        while self._at < len(self._in):
            text = self._in[self._at].text
            self._at += 1
            if text in _CLOSE:
                expected.append(_CLOSE[text])
            elif text in _CLOSE.values() and expected.pop() != text:
                break
            if not expected:
                return self._in[start + 1 : self._at - 1]
        raise P4Error(position, "annotation without its closing parenthesis")

    def _name(self, token: Token) -> None:
        text = token.text
        if text in _REFUSED and self._text() == "<":
            raise Unsupported(token.position, _REFUSED[text])
        if text == "match_kind" and self._text() != "{":
            raise Unsupported(token.position, "match_kind as a type")
        if text in KEYWORDS:
            self._keyword(token)
        elif text == "_":
            self._emit(token, "UNDERSCORE")
        elif self._is_soft_keyword(text):
            if text == "entries":
                self._entries = self._depth + 1
            self._typedef |= text == "type"
            self._emit(token, "INT_TYPE" if text == "int" else text.upper())
        else:
            self._identifier(token)

    def _is_soft_keyword(self, text: str) -> bool:
        following = self._text()
        if text == "apply":
            return following == "{" and self._previous() != "."
        if text in ("key", "actions", "entries"):
            return following == "=" and self._text(1) == "{"
        if text == "state":
            return self._text(1) == "{" and self._previous() in ("}", ";", "{", "ANNOTATION")
        if text == "type":
            return self._depth == 0 and self._parens == 0 and following != ";"
        return text == "priority" and self._entries is not None and following in ("=", "(")

    def _keyword(self, token: Token) -> None:
        text = token.text
        self._emit(token, "INT_TYPE" if text == "int" else text.upper())
        if text in _DECLARES:
            self._declare(self._text())
        elif text == "enum":
            # enum NAME, or enum bit<8> NAME: the name is the token before the brace.
            ahead = 0
            while self._text(ahead) not in ("{", "}", ";", "enum", ""):  # "enum" again: text read once
                ahead += 1
            self._declare(self._text(ahead - 1))
        elif text == "extern" and (self._text(1) == "{" or self._is_generic_block()):
            self._declare(self._text())
        elif text == "typedef":
            self._typedef = True

    def _is_generic_block(self) -> bool:
        """Return whether ``NAME < ... > {`` follows."""
        end = self._end_of_parameters(1)
        return end is not None and self._text(end) == "{"

    def _end_of_parameters(self, ahead: int) -> int | None:
        """Return the index after ``< NAME , NAME >``, which begins ``ahead``; None without such tokens."""
        if self._text(ahead) != "<":
            return None
        ahead += 1
        while True:
            index = self._at + ahead
            if index >= len(self._in) or self._in[index].type != "NAME" or self._text(ahead) in KEYWORDS:
                return None
            if self._text(ahead + 1) == ">":
                return ahead + 2
            if self._text(ahead + 1) != ",":
                return None
            ahead += 2

    def _declare(self, name: str, is_type: bool = True) -> None:
        self._scopes[-1].types[name] = is_type

    def _is_type(self, name: str) -> bool:
        return next((s.types[name] for s in reversed(self._scopes) if name in s.types), False)

    def _previous(self) -> str:
        return self._out[-1].type if self._out and self._out[-1].type != "OP" else ""

    def _identifier(self, token: Token) -> None:
        text = token.text
        before = self._out[-1].type if self._out else ""
        end = self._end_of_parameters(0)
        if end is not None and self._is_declaration(before) and self._text(end) in ("(", "{", ";"):
            self._emit(token, "NAME")
            if self._text(end) == "(" and before.lower() not in _DECLARES:
                self._generic.add(text)
            self._open_parameters()
            return
        if self._returned_parameter(text):
            self._emit(token, "TYPE")
            return
        if self._is_member(before):
            self._emit(token, "NAME")
            return
        after_type = before in ("TYPE", "GT_ARGS", "]") or before in {b.upper() for b in _BASE}
        if self._is_type(text) and not (after_type and self._text() in ("=", ";", ",", ")")):
            if before == "." and not any(text in scope.types for scope in self._scopes[1:]):
                self._out.pop()  # .T is T if no other declaration hides it
            self._emit(token, "TYPE")
        elif before == "." or not self._typedef:
            self._emit(token, "NAME")
            if after_type and self._is_type(text):
                if self._parens:
                    self._parameters.append(text)
                else:
                    self._declare(text, False)
        else:
            self._emit(token, "NAME")
        if self._typedef and self._text() == ";":
            self._declare(text)
            self._typedef = False

    def _is_member(self, before: str) -> bool:
        """Return whether the name is a member after ``.``, and not a name of the outermost scope."""
        return before == "." and len(self._out) > 1 and self._out[-2].type in _ENDS_OPERAND

    def _is_declaration(self, before: str) -> bool:
        return before in ("TYPE", "GT_ARGS", "]") or before.lower() in _BASE | _DECLARES | {"extern"}

    def _returned_parameter(self, text: str) -> bool:
        """Return whether this is the T of ``T lookahead<T>()``, which comes before its declaration."""
        if self._is_type(text) or self._at >= len(self._in) or self._in[self._at].type != "NAME":
            return False
        end = self._end_of_parameters(1)
        if end is None or self._text(end) != "(":
            return False
        return text in {self._text(i) for i in range(2, end)}

    def _open_parameters(self) -> None:
        """Emit the ``< T, U >`` of a declaration; its names are types until the declaration ends."""
        if sum(scope.of_parameters for scope in self._scopes) == _MOST_PARAMETERS:
            raise Unsupported(self._in[self._at].position, "a text nested this deep")
        scope = _Scope(self._depth, of_parameters=True)
        self._scopes.append(scope)
        while True:
            token = self._in[self._at]
            self._at += 1
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
            self._open.append(self._parens)
            self._emit(token, "LT_ARGS")
        elif text == ">" and self._open and self._open[-1] == self._parens:
            self._open.pop()
            self._emit(token, "GT_ARGS")
        elif text == ">" and self._touches(token, ">"):
            self._at += 1
            self._out.append(Token("INFIX", ">>", token.position))
        elif text == ">" and self._touches(token, ">="):
            self._at += 1
            self._out.append(Token("ASSIGN", ">>=", token.position))
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
        place = token.position
        return self._text() == text and self._in[self._at].position == place._replace(column=place.column + 1)

    def _opens_arguments(self) -> bool:
        if not self._out:
            return False
        before = self._out[-1]
        return before.type in ("TYPE", "BIT", "INT_TYPE", "VARBIT", "TUPLE", "VALUE_SET") or (
            before.type == "NAME" and before.text in self._generic and self._is_call()
        )

    def _is_call(self) -> bool:
        """Return whether the ``<`` before here opens type arguments of a call, and is not a comparison."""
        if self._at not in self._calls:  # look once at the whole text up to the next ; { or }
            open_at = [self._at]
            for index in range(self._at, len(self._in)):
                text = self._in[index].text
                if text in (";", "{", "}"):
                    break
                if text == "<":
                    open_at.append(index + 1)
                elif text == ">" and open_at:
                    self._calls[open_at.pop()] = self._text(index + 1 - self._at) == "("
            self._calls |= dict.fromkeys(open_at, False)
        return self._calls[self._at]

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
            if self._entries == self._depth:
                self._entries = None
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
