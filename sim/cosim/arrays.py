"""Replacement of arrays of binary32 operators by C in the simulator: same ports, latency and bits as the RTL.

The modules of ``LaneArray`` and ``AdderArray`` in emitted Verilog are found by class and replaced. One call per
cycle and array costs a fraction of the simulation of the operators' registers.
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

#: Classes of the arrays' operators. Their outputs are registers, so each operator can be Verilated separately.
OPERATORS = (FP32Multiplier.__name__, FP32Adder.__name__)

_CLASSES: dict[str, type[LaneArray | AdderArray]] = {kind.__name__: kind for kind in (LaneArray, AdderArray)}


class Arith(StrEnum):
    """Implementation of arrays in the simulator."""

    RTL = "rtl"  #: the arrays' Verilog
    C = "c"


@dataclass(frozen=True)
class Array:
    """An array in emitted Verilog: the name of its module, and the component."""

    module: str
    component: LaneArray | AdderArray

    @property
    def latency(self) -> int:
        """Latency in cycles."""
        return self.component.latency

    @property
    def widths(self) -> dict[str, int]:
        """Bits of each port, by name."""
        return {name: FLOAT_BITS * len(getattr(self.component, name)) for name in ("a", "b", "o")}

    @property
    def outputs(self) -> int:
        """Number of binary32 outputs."""
        return len(self.component.o)

    @cached_property
    def products(self) -> list[tuple[int, int]]:
        """Operands of each product, all outputs per term, in ``tree_order``; empty for an AdderArray."""
        if isinstance(self.component, AdderArray):
            return []
        trees = self.component.trees
        return [tree[term] for term in tree_order(len(trees[0])) for tree in trees]


def tree_order(terms: int) -> list[int]:
    """Return an order of a balanced tree's terms in which every level adds its first half to its second half.

    A level of n nodes adds place k to place k + n // 2; an odd node stays last. Node k of the level above is
    the sum of nodes 2k and 2k + 1, so its place determines theirs.
    """
    if terms == 1:
        return [0]
    parent_order = tree_order(-(-terms // 2))
    pairs, unpaired = parent_order[: terms // 2], [terms - 1] * (terms % 2)
    return [2 * node for node in pairs] + [2 * node + 1 for node in pairs] + unpaired


def with_arrays(verilog: str, arith: Arith) -> tuple[str, list[Array]]:
    """Return emitted Verilog with its arrays replaced as ``arith`` says, and the arrays that call C."""
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
    """Return the C++ functions of ``arrays``, once per module."""
    return template("arrays.cpp.j2").render(arrays={array.module: array for array in arrays}.values())


def _replaced(verilog: str, module: str, text: str) -> str:
    """Return Verilog with the text of one module replaced."""
    begin, end = verilog.index(f"\nmodule {module}(") + 1, "\nendmodule\n"
    return verilog[:begin] + text + verilog[verilog.index(end, begin) + len(end) :]


def _component(call: str) -> LaneArray | AdderArray:
    """Return the component that a header line of emitted Verilog names, with its parameters."""
    expression = ast.parse(call, mode="eval").body
    assert isinstance(expression, ast.Call)
    parameters = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in expression.keywords}
    component = _CLASSES[call.partition("(")[0]](**parameters)
    component._MustUse__used = True  # suppresses Amaranth's warning: only the signature is used
    return component
