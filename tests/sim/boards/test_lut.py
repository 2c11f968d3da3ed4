"""Tables as expressions of few operators: what they compute, by reading them as Python does."""

import itertools
import random
import re

import pytest

from fanin.sim.boards.lut import lut_expression

NAMES = ["a", "b", "c", "d"]


def value(expression, inputs):
    """A Verilog expression of single bits, computed from the innermost parentheses outwards."""
    text = re.sub(r"\b[a-d]\b", lambda match: str(inputs[match[0]]), expression.replace("1'b", ""))
    while inner := re.search(r"\(([^()]*)\)", text):
        text = text[: inner.start()] + operation(inner[1]) + text[inner.end() :]
    return int(operation(text))


def operation(text):
    text = text.replace("~0", "1").replace("~1", "0").strip()
    if choice := re.fullmatch(r"([01]) \? ([01]) : ([01])", text):
        return choice[2] if choice[1] == "1" else choice[3]
    assert re.fullmatch(r"[01]( [&|^] [01])?", text), text
    return str(eval(text))


def check(table, inputs):
    expression = lut_expression(table, inputs)
    for bits in itertools.product((0, 1), repeat=4):
        fixed = [int(name[-1]) if "'" in name else bit for name, bit in zip(inputs, bits, strict=True)]
        index = sum(bit << position for position, bit in enumerate(fixed))
        assert value(expression, dict(zip(NAMES, bits, strict=True))) == table >> index & 1, (expression, bits)


def test_tables():
    for table in [0, 0xFFFF, 0x6996, 0x8000, *random.Random(3).sample(range(1 << 16), 300)]:
        check(table, NAMES)


@pytest.mark.parametrize("inputs", [["a", "1'b1", "c", "1'b0"], ["1'b1"] * 4, ["1'b0", "b", "c", "d"]])
def test_constant_inputs(inputs):
    for table in random.Random(4).sample(range(1 << 16), 100):
        check(table, inputs)


def test_few_operators():
    assert lut_expression(0xFF00, NAMES) == "d"
    assert lut_expression(0x6666, NAMES) == "(b ^ a)"
    assert lut_expression(0x8000, NAMES) == "(d & (c & (b & a)))"
    assert lut_expression(0xCACA, NAMES) == "(c ? b : a)"
