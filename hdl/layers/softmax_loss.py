"""Softmax, and the gradient of its cross-entropy."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers import soft_cross_loss
from fanin.cnn.layers.latencies import RESULTS
from fanin.cnn.layers.layer import Parallelism
from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.array import AdderArray
from fanin.hdl.arith.datapath import Datapath, Number
from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.exp import exp
from fanin.hdl.arith.fp32 import FP32Adder
from fanin.hdl.arith.reciprocal import reciprocal
from fanin.hdl.emit import shared
from fanin.hdl.layers.channels import ChannelMemory, ChannelUpdate, group_range, negated, products
from fanin.hdl.layers.interface import Mode, layer_members
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO

_FOLD = 1 + FP32Adder.LATENCY  # cycles from a term to the updated sum
_TO_P = soft_cross_loss.SOFTMAX  # cycles from a row's address to p = e ⊗ 1/Σe


class Greatest(wiring.Component):
    """Maximum of a frame's words. If one of them is NaN, it is meaningless; all later results are NaN anyway.

    Members
    -------
    ``restart`` : In(1)
        Clear the maximum; not while words are in flight.
    ``row`` : In, ``ArrayLayout(32, lanes)``
        Words of the frame, binary32.
    ``valid`` : In(1)
        ``row`` holds words.
    ``greatest`` : Out(32)
        Maximum of all words since ``restart``, binary32.

    Parameters
    ----------
    ``lanes`` : int, at least 1

    Latency
    -------
    ``latency`` cycles, 2 + ⌈log2 lanes⌉.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, lanes: int):
        self.lanes = lanes
        super().__init__(
            {
                "restart": In(1),
                "row": In(data.ArrayLayout(FLOAT_BITS, lanes)),
                "valid": In(1),
                "greatest": Out(FLOAT_BITS),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from the last row to the result."""
        return 2 + soft_cross_loss.levels(self.lanes)

    def elaborate(self, platform: Any) -> Module:
        """Map words to keys that order as unsigned integers, reduce them by tree, and keep the maximum.

        A level of the tree takes one cycle.
        """
        m = Module()
        keys = [self._register(m, _key(word), f"key_{lane}") for lane, word in enumerate(self.row)]
        for level in range(soft_cross_loss.levels(self.lanes)):
            pairs = [keys[k : k + 2] for k in range(0, len(keys), 2)]
            keys = [
                self._register(m, _larger(*pair) if len(pair) > 1 else pair[0], f"key_{level}_{index}")
                for index, pair in enumerate(pairs)
            ]
        valid = delayed(m, self.valid, self.latency - 1, name="valid", reset_less=False)[-1]
        greatest_key = Signal(FLOAT_BITS)
        with m.If(self.restart):
            m.d.sync += greatest_key.eq(0)  # below the key of −∞
        with m.Elif(valid):
            m.d.sync += greatest_key.eq(_larger(greatest_key, keys[0]))
        m.d.comb += self.greatest.eq(Mux(greatest_key[-1], Cat(greatest_key[:-1], Const(0, 1)), ~greatest_key))
        return m

    @staticmethod
    def _register(m: Module, value: Value, name: str) -> Signal:
        return delayed(m, Value.cast(value), 1, name=name)[-1]


def _key(bits: Value) -> Value:
    """Return an unsigned integer that orders as the binary32 number does."""
    return Mux(bits[-1], ~bits, Cat(bits[:-1], Const(1, 1)))


def _larger(a: Value, b: Value) -> Value:
    return Mux(a < b, b, a)


class ExpUpdate(ChannelUpdate):
    """Update that computes exp (x ⊖ max) of every word of a frame.

    Members
    -------
    Members of ``ChannelUpdate``: ``start``, ``busy``, ``done``, ``read_group``, ``rows`` (x, then max in
    all lanes), ``write``, ``write_group``, ``write_lane``, ``words``.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1

    Latency
    -------
    The latency of ``ChannelUpdate``.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, groups: int, lanes: int):
        super().__init__(groups=groups, lanes=lanes, operands=2, results=1, interval=soft_cross_loss.INTERVAL)

    def formula(self, path: Datapath, *operands: Number) -> tuple[Number, ...]:
        """Return exp (x ⊖ max), computed with one multiplier and one adder."""
        return (exp(path, path.subtract(*operands)),)


class ReciprocalUpdate(ChannelUpdate):
    """Update that computes the reciprocal of a single word.

    Members
    -------
    Members of ``ChannelUpdate``: ``start``, ``busy``, ``done``, ``read_group``, ``rows``, ``write``,
    ``write_group``, ``write_lane``, ``words``.

    Parameters
    ----------
    None.

    Latency
    -------
    The latency of ``ChannelUpdate``.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self) -> None:
        super().__init__(groups=1, lanes=1, operands=1, results=1, interval=soft_cross_loss.INTERVAL)

    def formula(self, path: Datapath, *operands: Number) -> tuple[Number, ...]:
        """Return the reciprocal, computed with one multiplier and one adder."""
        return (reciprocal(path, *operands),)


class SoftmaxLoss(wiring.Component):
    """Softmax p of a frame, and p ⊖ label, the gradient of its cross-entropy with a one-hot label.

    A frame has four phases. The layer takes the logits x, then computes and sums e = exp (x ⊖ max) word by
    word. It computes 1/Σe, and then emits p = e ⊗ 1/Σe and the gradient as the labels arrive. Evaluate mode
    takes labels, too, but emits no gradient.

    Members
    -------
    ``features`` : In, array of two streams of ``pi`` words
        Logits, then labels.
    ``outputs``, ``input_gradients``, ``control``
        Interface of a layer (docs/systems/layers.md). The only input gradient is that of the logits.

    Parameters
    ----------
    ``layer`` : fanin.cnn.layers.soft_cross_loss.SoftCrossLoss
    ``parallelism`` : Parallelism
        ``pi`` and ``po`` are equal and divide the channels.

    Latency
    -------
    ``layer.cycles`` a frame; p leaves 8 cycles after its label, the gradient 15.

    Source
    ------
    NADA, section II: the loss layer; docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, layer: soft_cross_loss.SoftCrossLoss, parallelism: Parallelism):
        if parallelism.pi != parallelism.po or layer.input.c % parallelism.po:
            raise ValueError(
                f"pi and po must be one divisor of {layer.input.c} channels, "
                f"not {parallelism.pi} and {parallelism.po}"
            )
        self.layer = layer
        self.parallelism = parallelism
        self.lanes = parallelism.po
        self.rows = layer.input.words // parallelism.po
        super().__init__(layer_members(layer, parallelism))

    def elaborate(self, platform: Any) -> Module:
        """Build one memory that holds x first; e overwrites x."""
        m = Module()
        m.submodules.memory = memory = ChannelMemory(groups=self.rows, lanes=self.lanes)
        m.submodules.greatest = greatest = Greatest(lanes=self.lanes)
        m.submodules.exp = exponentials = ExpUpdate(groups=self.rows, lanes=self.lanes)
        m.submodules.reciprocal = inverse = ReciprocalUpdate()
        logits = self.features[0]
        row = Signal(group_range(self.rows))
        transfer = Signal()
        issue = Signal()
        restart = Signal()
        total = self._total(m, exponentials, restart)
        scale = Signal(FLOAT_BITS, reset_less=True)
        with m.If(inverse.write):
            m.d.sync += scale.eq(inverse.words[0])
        has_room = self._results(m, issue, memory.read, scale)
        word = exponentials.words[0].replicate(self.lanes)
        m.d.comb += [
            transfer.eq(logits.valid & logits.ready),
            greatest.row.eq(logits.payload),
            greatest.valid.eq(transfer),
            greatest.restart.eq(restart),
            memory.read_group.eq(Mux(exponentials.busy, exponentials.read_group, row)),
            memory.write_group.eq(Mux(exponentials.busy, exponentials.write_group, row)),
            memory.write.eq(Mux(exponentials.busy, word, Value.cast(logits.payload))),
            memory.enables.eq(Mux(exponentials.write, exponentials.write_lane, transfer.replicate(self.lanes))),
            exponentials.rows[0].eq(memory.read),
            exponentials.rows[1].eq(greatest.greatest.replicate(self.lanes)),
            inverse.rows[0].eq(total),
        ]
        with m.If(transfer | issue):
            m.d.sync += row.eq(Mux(row == self.rows - 1, 0, row + 1))
        last = row == self.rows - 1
        wait = Signal(range(max(greatest.latency, _FOLD)))

        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += logits.ready.eq(1)
                with m.If(transfer & last):
                    m.next = "GREATEST"
            with m.State("GREATEST"):
                m.d.sync += wait.eq(wait + 1)
                with m.If(wait == greatest.latency - 1):
                    m.d.comb += exponentials.start.eq(1)
                    m.d.sync += wait.eq(0)
                    m.next = "EXP"
            with m.State("EXP"), m.If(exponentials.done):
                m.next = "SUM"
            with m.State("SUM"):
                m.d.sync += wait.eq(wait + 1)
                with m.If(wait == _FOLD - 1):
                    m.d.comb += inverse.start.eq(1)
                    m.d.sync += wait.eq(0)
                    m.next = "RECIPROCAL"
            with m.State("RECIPROCAL"), m.If(inverse.done):
                m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += [issue.eq(has_room & self.features[1].valid), self.features[1].ready.eq(issue)]
                with m.If(issue & last):
                    m.d.comb += restart.eq(1)
                    m.next = "TAKE"
        return m

    def _total(self, m: Module, exponentials: Any, restart: Value) -> Value:
        """Return the sum of the exponentials, added in order of arrival."""
        m.submodules.total = adder = shared(AdderArray(lanes=1))
        total = Signal(FLOAT_BITS)
        added = delayed(m, exponentials.write, adder.latency, name="added", reset_less=False)[-1]
        m.d.comb += [
            adder.a[0].eq(total),
            adder.b[0].eq(exponentials.words[0]),
            adder.valid.eq(exponentials.write),
        ]
        with m.If(added):
            m.d.sync += total.eq(adder.o[0])
        with m.If(restart):
            m.d.sync += total.eq(0)
        return total

    def _results(self, m: Module, issue: Value, row: Any, scale: Value) -> Value:
        """Queue p of each issued row and, in training, its gradient. Return whether both queues have room.

        ``row``: row of e, valid one cycle after ``issue``.
        """
        m.submodules.scale = scaled = shared(products(self.lanes))
        issues = delayed(m, issue, _TO_P + FP32Adder.LATENCY, name="issue", reset_less=False)
        m.d.comb += [scaled.a.eq(row), scaled.b.eq(scale.replicate(self.lanes)), scaled.valid.eq(issues[1])]
        has_room = self._queue(m, "outputs", self.outputs, issue, issues[_TO_P], scaled.o)
        if not self.layer.gradient:
            return has_room
        train = self.control.mode == Mode.TRAIN
        label = delayed(m, self.features[1].payload, _TO_P, name="label")[-1]
        m.submodules.subtract = subtract = shared(AdderArray(lanes=self.lanes))
        m.d.comb += [
            subtract.a.eq(scaled.o),
            subtract.b.eq(negated(label)),
            subtract.valid.eq(issues[_TO_P] & train),
        ]
        gradient = self.input_gradients[0]
        return has_room & self._queue(m, "gradients", gradient, issue & train, issues[-1] & train, subtract.o)

    @staticmethod
    def _queue(m: Module, name: str, port: Any, take: Value, push: Value, words: Any) -> Value:
        """Put a queue of results before ``port``; return whether it has a place for another result.

        ``take`` reserves a place, and ``push`` fills the place with ``words`` later.
        """
        m.submodules[name] = queue = StreamFIFO(shape=port.payload.shape(), depth=RESULTS)
        m.submodules[f"{name}_credits"] = credits = Credits(limit=RESULTS, full=True)
        connect_typed(m, queue.o, wiring.flipped(port))
        m.d.comb += [
            queue.i.valid.eq(push),
            queue.i.payload.eq(words),
            credits.take.eq(take),
            credits.give.eq(queue.o.valid & queue.o.ready),
        ]
        return credits.ok
