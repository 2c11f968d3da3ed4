"""Arithmetic of random expressions against a reading of P4 that shares nothing with the compiler."""

import re
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from .programs import one

WIDTHS = (1, 4, 8, 13, 32, 64)


@dataclass(frozen=True)
class Expression:
    """Text of an expression, the bits of its value, its width and whether it is signed."""

    text: str
    bits: str
    signed: bool

    @property
    def number(self) -> int:
        """The value, read from the bits as two's complement where signed."""
        weight = [2**i for i in reversed(range(len(self.bits)))]
        if self.signed:
            weight[0] = -weight[0]
        return sum(w for w, bit in zip(weight, self.bits, strict=True) if bit == "1")


def to_bits(number: int, width: int) -> str:
    """The lowest ``width`` bits, one by one."""
    return "".join("1" if number // 2**i % 2 else "0" for i in reversed(range(width)))


def _apply(operator: str, a: Expression, b: Expression) -> Expression:
    text, width, signed = f"({a.text} {operator} {b.text})", len(a.bits), a.signed
    x, y = a.number, b.number
    if operator == "++":
        return Expression(text, a.bits + b.bits, signed)
    if operator in ("<<", ">>"):
        fill = a.bits[0] if signed else "0"
        moved = a.bits + "0" * y if operator == "<<" else (fill * y + a.bits)[: max(y + width - y, 0)]
        moved = moved[-width:] if operator == "<<" else (fill * y + a.bits)[:width]
        return Expression(text, moved, signed)
    if operator in ("|+|", "|-|"):
        exact = x + y if operator == "|+|" else x - y
        low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
        return Expression(text, to_bits(sorted((low, exact, high))[1], width), signed)
    pairs = list(zip(a.bits, b.bits, strict=True))
    logic = {
        "&": [p == ("1", "1") for p in pairs],
        "|": ["1" in p for p in pairs],
        "^": [p[0] != p[1] for p in pairs],
    }
    if operator in logic:
        return Expression(text, "".join("1" if bit else "0" for bit in logic[operator]), signed)
    return Expression(text, to_bits({"+": x + y, "-": x - y, "*": x * y}[operator], width), signed)


@st.composite
def literals(draw, width, signed):
    number = draw(st.integers(0, 2**width - 1))
    expression = Expression("", to_bits(number, width), signed)
    if not signed:
        return Expression(f"{width}w{number}", expression.bits, signed)
    return Expression(f"((int<{width}>){width}w{number})", expression.bits, signed)


@st.composite
def expressions(draw, width, signed, depth):
    if depth == 0:
        return draw(literals(width, signed))
    kind = draw(st.sampled_from(("binary", "shift", "unary", "slice", "cast", "choice", "concatenation")))
    inner = draw(expressions(width, signed, depth - 1))
    if kind == "binary":
        operator = draw(st.sampled_from(("+", "-", "*", "&", "|", "^", "|+|", "|-|")))
        return _apply(operator, inner, draw(expressions(width, signed, depth - 1)))
    if kind == "shift":
        amount = draw(literals(8, False))
        return _apply(draw(st.sampled_from(("<<", ">>"))), inner, amount)
    if kind == "unary":
        operator = draw(st.sampled_from("-~"))
        number = -inner.number if operator == "-" else -inner.number - 1
        return Expression(f"({operator}{inner.text})", to_bits(number, width), signed)
    if kind == "choice":
        other = draw(expressions(width, signed, depth - 1))
        operator = draw(st.sampled_from(("<", ">=", "==", "!=")))
        holds = {
            "<": inner.number < other.number,
            ">=": inner.number >= other.number,
            "==": inner.bits == other.bits,
            "!=": inner.bits != other.bits,
        }[operator]
        text = f"({inner.text} {operator} {other.text} ? {inner.text} : {other.text})"
        return Expression(text, (inner if holds else other).bits, signed)
    if kind == "concatenation" and not signed and width > 1:
        left = draw(st.integers(1, width - 1))
        parts = (draw(expressions(w, False, depth - 1)) for w in (left, width - left))
        return _apply("++", *parts)
    if kind == "slice" and not signed:
        wide = width + draw(st.integers(0, 9))
        low = draw(st.integers(0, wide - width))
        whole = draw(expressions(wide, draw(st.booleans()), depth - 1))
        bits = whole.bits[wide - low - width : wide - low]
        return Expression(f"({whole.text})[{low + width - 1}:{low}]", bits, False)
    wide = draw(st.sampled_from(WIDTHS))
    whole = draw(expressions(wide, signed, depth - 1))
    fill = whole.bits[0] if signed else "0"
    bits = (fill * width + whole.bits)[-width:]
    if width == wide:
        return Expression(f"(({'bit' if not signed else 'int'}<{width}>){whole.text})", whole.bits, signed)
    return Expression(f"(({'int' if signed else 'bit'}<{width}>){whole.text})", bits, signed)


def _check(expected: list[Expression], texts: list[str], **parts: str) -> None:
    """Compute all of ``texts`` in one program."""
    fields = "".join(f"bit<64> x{index}; " for index in range(len(texts)))
    stores = "".join(
        f"hdr.h.x{index} = (bit<64>){f'(bit<{len(e.bits)}>)' if e.signed else ''}{text};\n"
        for index, (e, text) in enumerate(zip(expected, texts, strict=True))
    )
    parts["apply"] = parts.get("apply", "") + stores
    result = one("00" * 8 * len(texts), declarations=f"header h_t {{ {fields} }}", headers="h_t h;", **parts)
    for index, expression in enumerate(expected):
        assert int(result[16 * index : 16 * index + 16], 16) == int(expression.bits, 2), expression.text


@st.composite
def _several(draw):
    shapes = draw(st.lists(st.tuples(st.sampled_from(WIDTHS), st.booleans()), min_size=12, max_size=12))
    return [draw(expressions(width, signed, 2 + index % 2)) for index, (width, signed) in enumerate(shapes)]


@given(_several())
@settings(max_examples=12, deadline=None)
def test_constant_expressions(several):
    _check(several, [expression.text for expression in several])


@given(_several())
@settings(max_examples=25, deadline=None)
def test_expressions_of_variables(several):
    """The same with each literal read from a register, so that generated code does the work."""
    names: dict[str, str] = {}
    texts = [
        re.sub(r"\b(\d+)w\d+\b", lambda m: names.setdefault(m[0], f"v{len(names)}"), expression.text)
        for expression in several
    ]
    # A register starts at 0, which the compiler does not know; so the value is added to what is read.
    read = "".join(
        f"bit<{literal.split('w')[0]}> {name}; {name}_r.read({name}, 0); {name} = {name} + {literal};\n"
        for literal, name in names.items()
    )
    registers = "".join(
        f"register<bit<{literal.split('w')[0]}>>(1) {name}_r;\n" for literal, name in names.items()
    )
    _check(several, texts, locals=registers, apply=read)
