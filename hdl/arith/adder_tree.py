"""Adder trees: exact sums of many operands, one pipelined level a cycle."""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

from amaranth import Cat, Module, Shape, Signal, signed
from amaranth.hdl import ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

MAX_RADIX = 4


def tree_plan(inputs: int, radix: int, outputs: int = 1) -> list[int]:
    """Return the number of operands before and after each level of a tree.

    Example: [32, 11, 4, 2, 1] for 32 inputs of radix 3.
    """
    counts = [inputs]
    while counts[-1] > outputs:
        counts.append(max(outputs, -(-counts[-1] // radix)))
    return counts


def tree_levels(inputs: int, radix: int, outputs: int = 1) -> int:
    """Return the number of levels of a tree, which is its latency in cycles."""
    return len(tree_plan(inputs, radix, outputs)) - 1


def add_up(operands: Sequence[Any]) -> Any:
    """Return the sum of operands without the constant 0 that ``sum`` starts with; synthesis would add it."""
    return reduce(add, operands)


def sum_shape(operand: Shape, inputs: int) -> Shape:
    """Return a shape that holds any sum of ``inputs`` operands."""
    return Shape(operand.width + (inputs - 1).bit_length(), operand.signed)


def _check(*, inputs: int, radix: int) -> None:
    if inputs < 1:
        raise ValueError(f"inputs must be at least 1, not {inputs!r}")
    if radix not in range(2, MAX_RADIX + 1):
        raise ValueError(f"radix must be from 2 to {MAX_RADIX}, not {radix!r}")


class SumTree(wiring.Component):
    """Adder tree without a handshake, for pipelines that never stall or stall as one.

    Every level divides its operands into groups of at most ``radix``, of nearly equal size, and registers each
    group's exact sum. The last level leaves ``outputs`` partial sums. A sum of three or four operands is
    written as one expression. Synthesis turns it into carry-save compressors before one carry chain (two LUTs
    and the chain), or into a ternary adder.

    Members
    -------
    ``i`` : In, ``ArrayLayout(operand, inputs)``
        Operands.
    ``enable`` : In(1)
        Advance all levels; 1 when left unconnected.
    ``o`` : Out, ``ArrayLayout(sum_shape(operand, inputs), outputs)``
        Partial sums of neighbouring inputs; their total is the sum of all inputs. A partial sum has ceil(log2
        ``inputs``) bits more than an operand.

    Parameters
    ----------
    ``inputs`` : int, at least 1
        Number of operands.
    ``operand`` : ``Shape``, signed or unsigned
        Shape of an operand.
    ``radix`` : int, 2 to 4
        Operands that one adder takes; 3 by default.
    ``outputs`` : int, 1 to ``inputs``
        Number of partial sums; 1 by default.

    Latency
    -------
    ``levels`` cycles, ceil(log_radix(``inputs`` / ``outputs``)); one set of operands a cycle. With ``inputs`` =
    ``outputs`` the tree has no level and ``o`` is ``i``.

    Source
    ------
    P4SGD, section IV-A: adder trees that add three numbers a level.
    """

    def __init__(self, *, inputs: int, operand: Shape, radix: int = 3, outputs: int = 1):
        _check(inputs=inputs, radix=radix)
        if outputs not in range(1, inputs + 1):
            raise ValueError(f"outputs must be from 1 to inputs ({inputs}), not {outputs!r}")
        self.inputs = inputs
        self.operand = operand
        self.radix = radix
        self.outputs = outputs
        self.levels = tree_levels(inputs, radix, outputs)
        super().__init__(
            {
                "i": In(data.ArrayLayout(operand, inputs)),
                "enable": In(1, init=1),
                "o": Out(data.ArrayLayout(sum_shape(operand, inputs), outputs)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build level by level. Each operand carries its number of inputs, which gives its width."""
        m = Module()
        operands: list[tuple[ValueLike, int]] = [(self.i[k], 1) for k in range(self.inputs)]
        for level, count in enumerate(tree_plan(self.inputs, self.radix, self.outputs)[1:], start=1):
            bounds = [len(operands) * k // count for k in range(count + 1)]
            groups = [operands[a:b] for a, b in pairwise(bounds)]
            operands = []
            for k, group in enumerate(groups):
                leaves = sum(size for _, size in group)
                total = Signal(sum_shape(self.operand, leaves), name=f"sum_{level}_{k}", reset_less=True)
                with m.If(self.enable):
                    m.d.sync += total.eq(add_up([value for value, _ in group]))
                operands.append((total, leaves))
        m.d.comb += [self.o[k].eq(value) for k, (value, _) in enumerate(operands)]
        return m


class AdderTree(wiring.Component):
    """Exact sum of ``inputs`` signed operands, as a stream.

    The pipeline stalls as one: it advances when its last register is empty or is being taken.

    Members
    -------
    ``i`` : In, stream of ``ArrayLayout(signed(width), inputs)``
        Sets of operands. ``ready`` follows ``o.ready`` within the cycle.
    ``o`` : Out, stream of ``signed(width + ceil(log2 inputs))``
        Sums, in the order of the sets.

    Parameters
    ----------
    ``inputs`` : int, at least 1
        Number of operands.
    ``width`` : int, at least 1
        Bits of an operand.
    ``radix`` : int, 2 to 4
        Operands that one adder takes; 3 by default.

    Latency
    -------
    ``levels`` cycles, ceil(log_radix ``inputs``), none for one input; one sum a cycle.

    Source
    ------
    P4SGD, section IV-A3; docs/systems/glm.md.
    """

    def __init__(self, *, inputs: int, width: int, radix: int = 3):
        _check(inputs=inputs, radix=radix)
        if width < 1:
            raise ValueError(f"width must be at least 1 bit, not {width!r}")
        self.inputs = inputs
        self.width = width
        self.radix = radix
        self.levels = tree_levels(inputs, radix)
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(signed(width), inputs))),
                "o": Out(stream.Signature(sum_shape(signed(width), inputs))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the tree with one valid bit per level."""
        m = Module()
        m.submodules.tree = tree = SumTree(inputs=self.inputs, operand=signed(self.width), radix=self.radix)
        advance = Signal()
        valid = Signal(self.levels)
        passed = Cat(self.i.valid, valid)  # bit n: a set of operands has passed level n
        m.d.comb += [
            advance.eq(self.o.ready | ~self.o.valid),
            self.i.ready.eq(advance if self.levels else self.o.ready),
            tree.i.eq(self.i.payload),
            tree.enable.eq(advance),
            self.o.valid.eq(passed[self.levels]),
            self.o.payload.eq(tree.o[0]),
        ]
        with m.If(advance):
            m.d.sync += valid.eq(passed)
        return m
