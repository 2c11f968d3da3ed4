"""Forward way of online normalisation.

m and s are a channel's running mean and variance, r is 1/σ, and d = x ⊖ m is a centred word.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers import online_norm
from fanin.cnn.layers.latencies import RESULTS
from fanin.cnn.layers.layer import Parallelism
from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.array import AdderArray
from fanin.hdl.arith.datapath import Constant, Datapath, Number
from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.rsqrt import rsqrt
from fanin.hdl.emit import shared
from fanin.hdl.layers.channels import ChannelSums, ChannelUpdate, negated, products
from fanin.hdl.layers.frame_steps import FrameSteps
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.norm_control import NormControl
from fanin.hdl.layers.norm_state import FORWARD, NormMemories, connect_update, state_access
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO

_MEAN, _VARIANCE, _SCALE = range(len(FORWARD))
_D, _Y = online_norm.CENTRED, online_norm.SCALED  # cycles from the transfer of a word to x ⊖ m, and to y


def result_shape(lanes: int) -> data.StructLayout:
    """Return the shape of a result: words, and flags for ``output`` and for ``save``."""
    return data.StructLayout({"words": data.ArrayLayout(FLOAT_BITS, lanes), "output": 1, "save": 1})


class NormForwardUpdate(ChannelUpdate):
    """Update of every channel's mean, variance and 1/σ after a frame.

    Members
    -------
    Members of ``ChannelUpdate``: ``start``, ``busy``, ``done``, ``read_group``, ``rows`` (mean, variance, sum
    and sum of squares), ``write``, ``write_group``, ``write_lane``, ``words`` (mean, variance, 1/σ).

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

    multipliers = 3
    adders = 2

    def __init__(self, *, layer: online_norm.OnlineNorm, parallelism: Parallelism):
        self.layer = layer
        self.parallelism = parallelism
        super().__init__(
            groups=layer.groups(parallelism),
            lanes=parallelism.po,
            operands=4,
            results=len(FORWARD),
            interval=online_norm.INTERVAL,
        )

    def formula(self, path: Datapath, *operands: Number) -> tuple[Number, ...]:
        """Return the new mean, variance and 1/σ. Operations that 1/σ depends on come first.

        ``a`` and ``q`` are the frame's means of d and of d ⊗ d; ``alpha`` and ``beta`` weigh old and new state.
        """
        mean, variance, total, squares = operands
        alpha, beta, _, epsilon, share = (Constant(float(c)) for c in self.layer.constants)
        a = path.multiply(total, share)
        q = path.multiply(squares, share)
        excess = path.subtract(q, path.multiply(beta, path.multiply(a, a)))
        decayed = path.multiply(alpha, variance)
        variance = path.add(decayed, path.multiply(beta, excess))
        scale = rsqrt(path, path.add(variance, epsilon))
        return path.add(mean, path.multiply(beta, a)), variance, scale


class NormForward(wiring.Component):
    """Forward way: y = (x ⊖ m) ⊗ r of every word, and new m, s and r after each training frame.

    If the layer has a gradient, a training frame saves r of every channel first, and then y.

    Members
    -------
    ``features`` : In, stream of ``po`` words
    ``results`` : Out, stream of ``result_shape``
        Words with their destinations.
    ``train`` : In(1)
        Incoming frames are training frames. Other frames change no state and save nothing.
    ``access`` : In, ``state_access``
        Access to mean, variance and 1/σ, while no frame is in progress.
    ``idle`` : Out(1)
        No frame is in progress.

    Parameters
    ----------
    ``layer`` : fanin.cnn.layers.online_norm.OnlineNorm
    ``parallelism`` : Parallelism

    Latency
    -------
    15 cycles from a word to its result. Without stalls, a training frame takes ``layer.cycles`` cycles; any
    other frame takes 1 + positions · max(groups of channels, 8) cycles.

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
                "features": In(word_stream(self.lanes)),
                "results": Out(stream.Signature(result_shape(self.lanes))),
                "train": In(1),
                "access": In(state_access(self.groups, self.lanes, len(FORWARD))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a pipeline of words, and the update of channels that follows each frame."""
        m = Module()
        shape = {"groups": self.groups, "lanes": self.lanes}
        m.submodules.memories = memories = NormMemories(**shape, kinds=len(FORWARD))
        m.submodules.total = total = ChannelSums(**shape)
        m.submodules.squares = squares = ChannelSums(**shape)
        m.submodules.update = update = NormForwardUpdate(layer=self.layer, parallelism=self.parallelism)
        m.submodules.steps = steps = FrameSteps(
            positions=self.layer.input.h * self.layer.input.w, groups=self.groups
        )
        m.submodules.control = control = NormControl(
            groups=self.groups, scales_pass=bool(self.layer.saved_words), drain=_Y + squares.latency - 1
        )
        m.submodules.results = results = StreamFIFO(shape=result_shape(self.lanes), depth=RESULTS)
        m.submodules.credits = credits = Credits(limit=RESULTS, full=True)
        connect_typed(m, wiring.flipped(self.access), memories.access)
        connect_update(m, memories, update)
        connect_typed(m, results.o, wiring.flipped(self.results))

        group = delayed(m, steps.group, _Y - 1, name="group")
        first = delayed(m, steps.first, _Y, name="first")
        transfers = delayed(m, steps.taken, _Y, name="transfer", reset_less=False)
        d, y, square = self._words(m, transfers, memories)
        for sums, value, latency in ((total, d, _D), (squares, square, _Y)):
            m.d.comb += [
                sums.group.eq(Mux(update.busy, update.read_group, group[latency - 1])),
                sums.value.eq(value),
                sums.valid.eq(transfers[latency]),
                sums.first.eq(first[latency]),
            ]
        m.d.comb += [
            memories.read_groups[_MEAN].eq(Mux(update.busy, update.read_group, steps.group)),
            memories.read_groups[_VARIANCE].eq(update.read_group),
            memories.read_groups[_SCALE].eq(Mux(control.scales, control.group, group[_D - 1])),
            Value.cast(update.rows).eq(Cat(memories.rows[:_SCALE], total.sums, squares.sums)),
        ]

        passed = delayed(m, control.passed, 1, name="passed", reset_less=False)[-1]
        m.d.comb += [
            control.begin.eq(self.features.valid & ~self.access.active),
            control.learn.eq(self.train),
            control.passed.eq(control.scales & credits.ok),
            control.end.eq(steps.end),
            control.updated.eq(update.done),
            self.idle.eq(control.idle),
            update.start.eq(control.update),
            steps.active.eq(control.words),
            steps.taken.eq(self.features.valid & self.features.ready),
            self.features.ready.eq(steps.work & credits.ok),
            credits.take.eq(steps.taken | control.passed),
            credits.give.eq(results.o.valid & results.o.ready),
            results.i.valid.eq(transfers[_Y] | passed),
            results.i.payload.words.eq(Mux(passed, memories.rows[_SCALE].as_value(), y.as_value())),
            results.i.payload.output.eq(~passed),
            results.i.payload.save.eq(self.train),
        ]
        return m

    def _words(self, m: Module, transfers: list[Value], memories: Any) -> tuple[Any, Any, Any]:
        """Return d = x ⊖ m, ``_D`` cycles after a word's transfer, and d ⊗ r and d ⊗ d, ``_Y`` cycles after."""
        m.submodules.subtract = subtract = shared(AdderArray(lanes=self.lanes))
        m.submodules.scale = scale = shared(products(self.lanes))
        m.submodules.square = square = shared(products(self.lanes))
        m.d.comb += [
            subtract.a.eq(delayed(m, self.features.payload, 1, name="x")[-1]),
            subtract.b.eq(negated(memories.rows[_MEAN])),
            subtract.valid.eq(transfers[1]),
            scale.a.eq(subtract.o),
            scale.b.eq(memories.rows[_SCALE]),
            scale.valid.eq(transfers[_D]),
            square.a.eq(subtract.o),
            square.b.eq(subtract.o),
            square.valid.eq(transfers[_D]),
        ]
        return subtract.o, scale.o, square.o
