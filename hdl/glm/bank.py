"""Bank: the forward lanes of one sample."""

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.adder_tree import SumTree, add_up, tree_levels
from fanin.hdl.arith.bit_serial import OPERAND_BITS, PairLanes, PairTerms
from fanin.hdl.arith.delay import delayed
from fanin.hdl.glm.shapes import LOW_BITS, SplitSum, check_engine

TREE_RADIX = 3


def tree_outputs(operands: int) -> int:
    """Return the number of partial sums that a tree of ``operands`` inputs gives to the accumulator.

    The accumulator adds at most two values to its own in a cycle.
    """
    return min(2, operands)


def reduction_levels(operands: int) -> int:
    """Return the latency in cycles of a tree before an accumulator."""
    return tree_levels(operands, TREE_RADIX, tree_outputs(operands))


def bank_latency(lanes: int) -> int:
    """Return the cycles from a word's bits to its sum: select, tree, accumulate."""
    return 2 + reduction_levels(lanes // 2)


class Bank(wiring.Component):
    """Partial activation of one sample: a row of bit-serial multipliers, an adder tree, an accumulator.

    A word with ``first`` restarts the sum; each later word adds its products. Cycles without ``valid`` add
    nothing.

    Members
    -------
    ``terms`` : In, ``ArrayLayout(PairTerms, lanes // 2)``
        Terms of the weights, shared by all banks.
    ``bits`` : In(lanes)
        One bit (the current bit plane) of each feature of the sample.
    ``valid`` : In(1)
        A word is present in this cycle.
    ``first`` : In(1)
        The word is the first of a micro-batch.
    ``o`` : Out, ``SplitSum``
        Sum up to and including the word of ``latency`` cycles ago.

    Parameters
    ----------
    ``lanes`` : int, a power of two, 2 to 64
        Features of a word.

    Latency
    -------
    ``latency`` = 2 + tree levels: 5 cycles at 64 lanes (select, 32 → 11 → 4 → 2, accumulate); one word a cycle.

    Source
    ------
    P4SGD, section IV-A3, figure 5(b).
    """

    def __init__(self, *, lanes: int = 64):
        check_engine(lanes=lanes, banks=2)
        self.lanes = lanes
        self.latency = bank_latency(lanes)
        super().__init__(self._members())

    def _members(self) -> dict[str, Any]:
        return {
            "terms": In(data.ArrayLayout(PairTerms, self.lanes // 2)),
            "bits": In(self.lanes),
            "valid": In(1),
            "first": In(1),
            "o": Out(SplitSum),
        }

    def elaborate(self, platform: Any) -> Module:
        """Build a feed-forward pipeline; only the accumulator has a loop."""
        m = Module()
        m.submodules.lanes = lanes = PairLanes(inputs=self.lanes)
        pairs = self.lanes // 2
        m.submodules.tree = tree = SumTree(
            inputs=pairs, operand=signed(OPERAND_BITS), radix=TREE_RADIX, outputs=tree_outputs(pairs)
        )
        valid = delayed(m, self.valid, self.latency - 1, name="valid", reset_less=False)[-1]
        first = delayed(m, self.first, self.latency - 1, name="first")[-1]
        m.d.comb += [
            lanes.terms.eq(self.terms),
            lanes.bits.eq(self.bits),
            tree.i.eq(lanes.o),
        ]
        total = Signal(SplitSum, reset_less=True)
        operands = [tree.o[k] for k in range(tree.outputs)]
        with m.If(valid):
            m.d.sync += [
                total.low.eq(Mux(first, 0, total.low) + add_up([x[:LOW_BITS] for x in operands])),
                total.high.eq(Mux(first, 0, total.high) + add_up([x >> LOW_BITS for x in operands])),
            ]
        self._restart(m, total)
        m.d.comb += self.o.eq(total)
        return m

    def _restart(self, m: Module, total: Any) -> None:
        """Let ``total`` restart without a word; a bank of dense samples has a word in each micro-batch."""


class SparseBank(Bank):
    """Bank of a sparse engine, whose micro-batches may be without a word.

    Members
    -------
    ``restart`` : In(1)
        Restart the sum at zero without a word; not together with ``valid``.
    ``terms``, ``bits``, ``valid``, ``first``, ``o``
        See ``Bank``.

    Parameters
    ----------
    ``lanes`` : int, a power of two, 2 to 64
        Features of a word.

    Latency
    -------
    As ``Bank``, also from ``restart`` to ``o``.

    Source
    ------
    docs/systems/sparse.md.
    """

    def _members(self) -> dict[str, Any]:
        return super()._members() | {"restart": In(1)}

    def _restart(self, m: Module, total: Any) -> None:
        restart = delayed(m, self.restart, self.latency - 1, name="restart", reset_less=False)[-1]
        with m.If(restart):
            m.d.sync += total.eq(0)
