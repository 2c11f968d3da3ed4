"""Arrays of binary32 operators with a body in C, for the simulator alone: the same ports, latency and bits.

``LaneArray`` and ``AdderArray`` are found in emitted Verilog by class, and their modules replaced. One call a
cycle and array costs a fraction of what the registers of the operators cost.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier
from fanin.sim.cosim.templates import template

#: What arrays are made of, by class. Their outputs are registers, so that they may be Verilated apart.
OPERATORS = (FP32Multiplier.__name__, FP32Adder.__name__)

_CLASSES: dict[str, type[LaneArray | AdderArray]] = {kind.__name__: kind for kind in (LaneArray, AdderArray)}


class Arith(StrEnum):
    """What the arrays are simulated as."""

    RTL = "rtl"  #: their Verilog
    C = "c"


@dataclass(frozen=True)
class Array:
    """An array in emitted Verilog: the name of its module, and the component."""

    module: str
    component: LaneArray | AdderArray

    @property
    def latency(self) -> int:
        """Cycles."""
        return self.component.latency

    @property
    def widths(self) -> dict[str, int]:
        """Bits of each port of numbers."""
        return {name: FLOAT_BITS * len(getattr(self.component, name)) for name in ("a", "b", "o")}

    @property
    def outputs(self) -> int:
        """Numbers that leave."""
        return len(self.component.o)

    @cached_property
    def products(self) -> list[tuple[int, int]]:
        """Operands of each product, output by output innermost, as ``tree_order`` has them; of sums none."""
        if isinstance(self.component, AdderArray):
            return []
        trees = self.component.trees
        return [tree[term] for term in tree_order(len(trees[0])) for tree in trees]


def tree_order(terms: int) -> list[int]:
    """How to place the terms of a balanced tree so that every level adds its first half to its second.

    A level of n nodes adds place k to place k + n // 2; an odd last one stays last. Node k of the level above
    is the sum of nodes 2k and 2k + 1, and where it has to be placed decides where those are.
    """
    if terms == 1:
        return [0]
    above = tree_order(-(-terms // 2))
    pairs, odd = above[: terms // 2], [terms - 1] * (terms % 2)
    return [2 * node for node in pairs] + [2 * node + 1 for node in pairs] + odd


def with_arrays(verilog: str, arith: Arith) -> tuple[str, list[Array]]:
    """What ``emit_verilog`` wrote, with arrays as ``arith`` says, and those that call C."""
    if arith is Arith.RTL:
        return verilog, []
    arrays = [
        Array(module, _component(call))
        for module, call in re.findall(r"^//   (\w+): (\w+\(.*\))$", verilog, re.MULTILINE)
        if call.partition("(")[0] in _CLASSES
    ]
    body = template("array.sv.j2")
    for array in arrays:
        verilog = _replaced(verilog, array.module, body.render(array=array))
    return verilog, arrays


def arrays_source(arrays: Iterable[Array]) -> str:
    """C++ of what ``arrays`` call, of each module once."""
    return template("arrays.cpp.j2").render(arrays={array.module: array for array in arrays}.values())


def _replaced(verilog: str, module: str, text: str) -> str:
    """Verilog with another text of one of its modules."""
    begin, end = verilog.index(f"\nmodule {module}(") + 1, "\nendmodule\n"
    return verilog[:begin] + text + verilog[verilog.index(end, begin) + len(end) :]


def _component(call: str) -> LaneArray | AdderArray:
    """The component that a line of emitted Verilog names with its parameters."""
    expression = ast.parse(call, mode="eval").body
    assert isinstance(expression, ast.Call)
    parameters = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in expression.keywords}
    component = _CLASSES[call.partition("(")[0]](**parameters)
    component._MustUse__used = True  # its signature is all that is asked for
    return component
