"""Backward way of online normalisation.

The *control terms* ey and e1 of a channel are running values that remove from the gradient its component along
y and its mean.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers import online_norm
from fanin.cnn.layers.latencies import RESULTS
from fanin.cnn.layers.layer import Parallelism
from fanin.hdl.arith.array import AdderArray
from fanin.hdl.arith.datapath import Constant, Datapath, Number
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.layers.channels import ChannelMemory, ChannelSums, ChannelUpdate, negated, products
from fanin.hdl.layers.frame_steps import FrameSteps
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.norm_control import NormControl
from fanin.hdl.layers.norm_state import BACKWARD, NormMemories, connect_update, state_access
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO

_EY, _E1 = range(len(BACKWARD))
# Cycles from the transfer of a word to ey ⊗ y, to a = dy ⊖ (ey ⊗ y), to a ⊗ r and a ⊗ y, to dx = (a ⊗ r) ⊖ e1.
_PRODUCT, _A = online_norm.CONTROL_TERM, online_norm.CONTROLLED
_B, _DX = online_norm.PRODUCTS, online_norm.GRADIENT


class NormBackwardUpdate(ChannelUpdate):
    """Update of every channel's two control terms after a frame.

    Members
    -------
    Members of ``ChannelUpdate``: ``start``, ``busy``, ``done``, ``read_group``, ``rows`` (ey, e1, the frame's
    sums of a ⊗ y and of dx), ``write``, ``write_group``, ``write_lane``, ``words`` (ey, e1).

    Parameters
    ----------
    ``layer`` : fanin.cnn.layers.online_norm.OnlineNorm
    ``parallelism`` : Parallelism

    Latency
    -------
    The latency of ``ChannelUpdate``.

    Source
    ------
    Chiley et al., algorithm 1; docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, layer: online_norm.OnlineNorm, parallelism: Parallelism):
        self.layer = layer
        self.parallelism = parallelism
        super().__init__(
            groups=layer.groups(parallelism),
            lanes=parallelism.po,
            operands=4,
            results=len(BACKWARD),
            interval=online_norm.INTERVAL,
        )

    def formula(self, path: Datapath, *operands: Number) -> tuple[Number, ...]:
        """Return the new terms: each grows by a share of the frame's mean."""
        constants = self.layer.constants
        gain, share = Constant(float(constants.gain)), Constant(float(constants.mean_factor))
        terms, sums = operands[: len(BACKWARD)], operands[len(BACKWARD) :]
        means = [path.multiply(total, share) for total in sums]
        return tuple(path.add(term, path.multiply(gain, mean)) for term, mean in zip(terms, means, strict=True))


class NormBackward(wiring.Component):
    """Backward way: dx = ((dy ⊖ (ey ⊗ y)) ⊗ r) ⊖ e1 of every word, and new ey and e1 after each frame.

    Members
    -------
    ``gradients`` : In, stream of ``po`` words
        dy.
    ``replay`` : In, stream of ``po`` words
        For each frame r of every channel, then y.
    ``input_gradients`` : Out, stream of ``po`` words
        dx.
    ``access`` : In, ``state_access``
        Access to both control terms, while no frame is in progress.
    ``idle`` : Out(1)
        No frame is in progress.

    Parameters
    ----------
    ``layer`` : fanin.cnn.layers.online_norm.OnlineNorm
    ``parallelism`` : Parallelism

    Latency
    -------
    28 cycles from a word to its gradient. Without stalls, a frame takes fewer than ``layer.cycles`` cycles.

    Source
    ------
    Chiley et al., algorithm 1; docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, layer: online_norm.OnlineNorm, parallelism: Parallelism):
        self.layer = layer
        self.parallelism = parallelism
        self.lanes = parallelism.po
        self.groups = layer.groups(parallelism)
        super().__init__(
            {
                "gradients": In(word_stream(self.lanes)),
                "replay": In(word_stream(self.lanes)),
                "input_gradients": Out(word_stream(self.lanes)),
                "access": In(state_access(self.groups, self.lanes, len(BACKWARD))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a pipeline of words, and the update of channels that follows each frame."""
        m = Module()
        shape = {"groups": self.groups, "lanes": self.lanes}
        m.submodules.memories = memories = NormMemories(**shape, kinds=len(BACKWARD))
        m.submodules.scales = scales = ChannelMemory(**shape)
        m.submodules.products = of_products = ChannelSums(**shape)
        m.submodules.gradient = of_gradients = ChannelSums(**shape)
        m.submodules.update = update = NormBackwardUpdate(layer=self.layer, parallelism=self.parallelism)
        m.submodules.steps = steps = FrameSteps(
            positions=self.layer.input.h * self.layer.input.w, groups=self.groups
        )
        m.submodules.control = control = NormControl(
            groups=self.groups, scales_pass=True, drain=_DX + of_gradients.latency - 1
        )
        m.submodules.results = results = StreamFIFO(shape=self.input_gradients.payload.shape(), depth=RESULTS)
        m.submodules.credits = credits = Credits(limit=RESULTS, full=True)
        connect_typed(m, wiring.flipped(self.access), memories.access)
        connect_update(m, memories, update)
        connect_typed(m, results.o, wiring.flipped(self.input_gradients))

        group = delayed(m, steps.group, _DX - 1, name="group")
        first = delayed(m, steps.first, _DX, name="first")
        transfers = delayed(m, steps.taken, _DX, name="transfer", reset_less=False)
        product, dx = self._words(m, transfers, memories, scales.read)
        for sums, value, latency in ((of_products, product, _B), (of_gradients, dx, _DX)):
            m.d.comb += [
                sums.group.eq(Mux(update.busy, update.read_group, group[latency - 1])),
                sums.value.eq(value),
                sums.valid.eq(transfers[latency]),
                sums.first.eq(first[latency]),
            ]
        m.d.comb += [
            memories.read_groups[_EY].eq(Mux(update.busy, update.read_group, steps.group)),
            memories.read_groups[_E1].eq(Mux(update.busy, update.read_group, group[_B - 1])),
            Value.cast(update.rows).eq(Cat(memories.rows, of_products.sums, of_gradients.sums)),
            scales.read_group.eq(group[_A - 1]),
            scales.write_group.eq(control.group),
            scales.write.eq(self.replay.payload),
            scales.enables.eq(control.passed.replicate(self.lanes)),
        ]

        m.d.comb += [
            control.begin.eq(self.replay.valid & ~self.access.active),
            control.learn.eq(1),
            control.passed.eq(control.scales & self.replay.valid),
            control.end.eq(steps.end),
            control.updated.eq(update.done),
            self.idle.eq(control.idle),
            update.start.eq(control.update),
            steps.active.eq(control.words),
            steps.taken.eq(steps.work & credits.ok & self.gradients.valid & self.replay.valid),
            self.gradients.ready.eq(steps.taken),
            self.replay.ready.eq(steps.taken | control.scales),
            credits.take.eq(steps.taken),
            credits.give.eq(results.o.valid & results.o.ready),
            results.i.valid.eq(transfers[_DX]),
            results.i.payload.eq(dx),
        ]
        return m

    def _words(self, m: Module, transfers: list[Value], memories: Any, scale: Any) -> tuple[Any, Any]:
        """Return a ⊗ y, ``_B`` cycles after a word's transfer, and dx, ``_DX`` cycles after it."""
        dy = delayed(m, self.gradients.payload, _PRODUCT, name="dy")[-1]
        y = delayed(m, self.replay.payload, _A, name="y")
        m.submodules.control_term = control_term = shared(products(self.lanes))
        m.submodules.subtract = subtract = shared(AdderArray(lanes=self.lanes))
        m.submodules.scale = scaled = shared(products(self.lanes))
        m.submodules.product = product = shared(products(self.lanes))
        m.submodules.centre = centre = shared(AdderArray(lanes=self.lanes))
        m.d.comb += [
            control_term.a.eq(memories.rows[_EY]),
            control_term.b.eq(y[1]),
            control_term.valid.eq(transfers[1]),
            subtract.a.eq(dy),
            subtract.b.eq(negated(control_term.o)),
            subtract.valid.eq(transfers[_PRODUCT]),
            scaled.a.eq(subtract.o),
            scaled.b.eq(scale),
            scaled.valid.eq(transfers[_A]),
            product.a.eq(subtract.o),
            product.b.eq(y[_A]),
            product.valid.eq(transfers[_A]),
            centre.a.eq(scaled.o),
            centre.b.eq(negated(memories.rows[_E1])),
            centre.valid.eq(transfers[_B]),
        ]
        return product.o, centre.o
