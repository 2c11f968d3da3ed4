"""Small changes of a Python source that a test should notice, each as a piece of text in place of another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_DOMAINS = ("comb", "sync")  # of the statements of hardware, ``m.d.sync += ...``


@dataclass(frozen=True)
class Mutation:
    """``new`` in place of ``old``, which begins at byte ``start`` of the source."""

    line: int
    start: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.line}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split())}"

    def apply(self, source: str) -> str:
        """The mutated source."""
        raw = source.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.start + len(self.old.encode()) :]).decode()


def mutations(source: str) -> list[Mutation]:
    """Every mutation of a source, in its order.

    Comparisons flip or move by one, constants of whole numbers too; a condition of several loses one, or its
    negation; ``Mux`` and differences swap their operands, sums and differences their sign; a statement of
    hardware is left out. Types, texts and what an error says stay as they are.
    """
    return sorted(_Finder(source).found(), key=lambda each: (each.start, each.new))


class _Finder:
    def __init__(self, source: str):
        self.tree = ast.parse(source)
        self.raw = source.encode()
        self.lines = [0]
        for line in self.raw.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def found(self) -> Iterator[Mutation]:
        yield from self._walk(self.tree)

    def _walk(self, node: ast.AST) -> Iterator[Mutation]:
        for text in self._replacements(node):
            start, end = self._span(node)
            yield Mutation(node.lineno, start, self.raw[start:end].decode(), text)
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return  # of ``zip``: a check that never fails
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "exc", "msg"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield from self._walk(child)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.lines[node.lineno - 1] + node.col_offset,
            self.lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return f"({self.raw[start:end].decode()})"

    def _replacements(self, node: ast.AST) -> Iterator[str]:
        """Texts that may stand in place of a node."""
        text = self._text
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield from (f"{value + 1}", f"({value - 1})")
            case ast.Constant(value=bool(value)):
                yield str(not value)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield f"({text(left)} {_COMPARISONS[type(op)]} {text(right)})"
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
                yield from (text(left), text(right))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield f"({text(left)} - {text(right)})"
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                yield from (f"({text(left)} + {text(right)})", f"({text(right)} - {text(left)})")
            case ast.BoolOp(values=values):
                yield from (text(value) for value in values)
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
                yield text(operand)
            case ast.Call(func=ast.Name(id="Mux"), args=[condition, one, other]):
                yield f"Mux({text(condition)}, {text(other)}, {text(one)})"
            case ast.AugAssign(target=ast.Attribute(attr=attr), op=ast.Add()) if attr in _DOMAINS:
                yield "pass"
