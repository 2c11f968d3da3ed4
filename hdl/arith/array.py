"""Arrays of binary32 operators in lockstep. Wide datapaths use them for all floating-point arithmetic."""

from typing import Any

from amaranth import Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.delay import Pipeline
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier
from fanin.hdl.emit import shared

Trees = tuple[tuple[tuple[int, int], ...], ...]


def lane_latency(trees: Trees) -> int:
    """Return the cycles of a LaneArray from operands to sums."""
    return FP32Multiplier.LATENCY + FP32Adder.LATENCY * (len(trees[0]) - 1).bit_length()


class LaneArray(wiring.Component):
    """Array of binary32 multipliers, with a balanced adder tree over the products of each output.

    A level of a tree adds neighbours in pairs; an odd last value passes to the next level. Each operation
    rounds as ``FP32Multiplier`` and ``FP32Adder`` do. The array never stalls: a set of operands may enter in
    each cycle.

    Members
    -------
    ``a`` : In, ``ArrayLayout(32, …)``
        Bits of the first operands; one for each index in ``trees``.
    ``b`` : In, ``ArrayLayout(32, …)``
        Bits of the second operands; one for each index in ``trees``.
    ``valid`` : In(1)
        The operands are valid. If low, ``o`` is meaningless ``latency`` cycles later.
    ``o`` : Out, ``ArrayLayout(32, len(trees))``
        Bits of the sums; registered.

    Parameters
    ----------
    ``trees`` : tuple with a tuple per output of (index in ``a``, index in ``b``)
        Products of each output, in the order in which the tree adds them. All outputs have the same number of
        products.

    Latency
    -------
    ``latency`` cycles: 6 + 7 · ceil(log2 of the products of an output). One set of operands a cycle.

    Source
    ------
    NADA, table I: the multipliers of a convolution; docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, trees: Trees):
        if not trees or not trees[0] or len({len(tree) for tree in trees}) > 1:
            raise ValueError(
                f"trees must have at least one output, and equally many products for each, not {trees!r}"
            )
        self.trees = trees
        self._levels = (len(trees[0]) - 1).bit_length()
        a_count, b_count = (1 + max(term[side] for tree in trees for term in tree) for side in (0, 1))
        super().__init__(
            {
                "a": In(data.ArrayLayout(FLOAT_BITS, a_count)),
                "b": In(data.ArrayLayout(FLOAT_BITS, b_count)),
                "valid": In(1),
                "o": Out(data.ArrayLayout(FLOAT_BITS, len(trees))),
            }
        )

    @property
    def latency(self) -> int:
        """Return the cycles from operands to sums."""
        return lane_latency(self.trees)

    def elaborate(self, platform: Any) -> Module:
        """Build a multiplier per product, then the adders level by level."""
        m = Module()
        for index, terms in enumerate(self.trees):
            level: list[Value] = []
            for k, (a, b) in enumerate(terms):
                m.submodules[f"multiplier_{index}_{k}"] = multiplier = shared(FP32Multiplier())
                m.d.comb += [multiplier.a.eq(self.a[a]), multiplier.b.eq(self.b[b])]
                level.append(multiplier.o)
            for depth in range(self._levels):
                level = _added_pairs(m, level, name=f"{index}_{depth}")
            m.d.comb += self.o[index].eq(level[0])
        return m


def _added_pairs(m: Module, values: list[Value], *, name: str) -> list[Value]:
    """Return sums of neighbours, an adder's latency later; an odd last value is only delayed."""
    sums = []
    for k in range(0, len(values) - 1, 2):
        m.submodules[f"adder_{name}_{k // 2}"] = adder = shared(FP32Adder())
        m.d.comb += [adder.a.eq(values[k]), adder.b.eq(values[k + 1])]
        sums.append(adder.o)
    if len(values) % 2:
        sums.append(Pipeline(m, Value.cast(1)).delay(values[-1], FP32Adder.LATENCY, name=f"odd_{name}"))
    return sums


class AdderArray(wiring.Component):
    """Array of binary32 adders, one per lane, each an ``FP32Adder``. The array never stalls.

    Members
    -------
    ``a`` : In, ``ArrayLayout(32, lanes)``
        Bits of the first operands.
    ``b`` : In, ``ArrayLayout(32, lanes)``
        Bits of the second operands. Invert the sign bit to subtract.
    ``valid`` : In(1)
        The operands are valid. If low, ``o`` is meaningless ``latency`` cycles later.
    ``o`` : Out, ``ArrayLayout(32, lanes)``
        Bits of the sums; registered.

    Parameters
    ----------
    ``lanes`` : int, at least 1
        Number of adders.

    Latency
    -------
    ``latency``, 7 cycles; one set of operands a cycle. An accumulator that is read, added to and written may
    therefore be read again 8 cycles later.

    Source
    ------
    NADA, table I: the accumulators of a convolution; docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, lanes: int):
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes!r}")
        self.lanes = lanes
        operands = data.ArrayLayout(FLOAT_BITS, lanes)
        super().__init__({"a": In(operands), "b": In(operands), "valid": In(1), "o": Out(operands)})

    @property
    def latency(self) -> int:
        """Return the cycles from operands to sums."""
        return FP32Adder.LATENCY

    def elaborate(self, platform: Any) -> Module:
        """Build an adder per lane."""
        m = Module()
        for lane in range(self.lanes):
            m.submodules[f"adder_{lane}"] = adder = shared(FP32Adder())
            m.d.comb += [adder.a.eq(self.a[lane]), adder.b.eq(self.b[lane]), self.o[lane].eq(adder.o)]
        return m
