"""Online normalisation, a replacement of batch normalisation."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring

from fanin.cnn.layers import online_norm
from fanin.cnn.layers.layer import Parallelism
from fanin.hdl.layers.interface import Mode, layer_members
from fanin.hdl.layers.norm_backward import NormBackward
from fanin.hdl.layers.norm_forward import NormForward
from fanin.hdl.layers.norm_state import BACKWARD, FORWARD, NormMemories, NormStateMover
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork


class OnlineNorm(wiring.Component):
    """Normalisation of every channel by a running mean and variance, and of gradients by running control terms.

    State changes after each training frame, and the next frame waits for the change. A frame saves its 1/σ of
    every channel before y, since the backward way needs 1/σ with the first word. LOAD sets the initial state.

    Members
    -------
    ``features``, ``outputs``, ``gradients``, ``input_gradients``, ``save``, ``replay``, ``control``, ``load``,
    ``dump``
        Interface of a layer (docs/systems/layers.md). A frame saves 1/σ of every channel, then y.

    Parameters
    ----------
    ``layer`` : fanin.cnn.layers.online_norm.OnlineNorm
    ``parallelism`` : Parallelism
        ``pi`` and ``po`` are equal and divide the channels.

    Latency
    -------
    15 cycles from a word to its y, 28 to its dx. A training frame takes ``layer.cycles`` cycles, any other
    frame 1 + positions · max(groups of channels, 8) cycles.

    Source
    ------
    Chiley et al., "Online Normalization for Training Neural Networks", algorithm 1; docs/systems/layers.md.
    """

    def __init__(self, *, layer: online_norm.OnlineNorm, parallelism: Parallelism):
        if parallelism.pi != parallelism.po or layer.input.c % parallelism.po:
            raise ValueError(
                f"pi and po must be one divisor of {layer.input.c} channels, "
                f"not {parallelism.pi} and {parallelism.po}"
            )
        self.layer = layer
        self.parallelism = parallelism
        super().__init__(layer_members(layer, parallelism))

    def elaborate(self, platform: Any) -> Module:
        """Connect both ways and the mover of their state."""
        m = Module()
        shape = {"groups": self.layer.groups(self.parallelism), "lanes": self.parallelism.po}
        m.submodules.mover = mover = NormStateMover(**shape)
        m.submodules.forward = forward = NormForward(layer=self.layer, parallelism=self.parallelism)
        connect_typed(m, wiring.flipped(self.features[0]), forward.features)
        connect_typed(m, wiring.flipped(self.load), mover.load)
        connect_typed(m, mover.dump, wiring.flipped(self.dump))
        m.d.comb += [mover.control.eq(self.control), forward.train.eq(self.control.mode == Mode.TRAIN)]
        self._send(m, forward.results)
        if self.layer.gradient:
            m.submodules.backward = backward = NormBackward(layer=self.layer, parallelism=self.parallelism)
            connect_typed(m, wiring.flipped(self.gradients), backward.gradients)
            connect_typed(m, wiring.flipped(self.replay), backward.replay)
            connect_typed(m, backward.input_gradients, wiring.flipped(self.input_gradients[0]))
            accesses = {FORWARD: forward.access, BACKWARD: backward.access}
            m.d.comb += mover.idle.eq(forward.idle & backward.idle)
        else:  # the control terms stay constant, but are part of a checkpoint
            m.submodules.terms = terms = NormMemories(**shape, kinds=len(BACKWARD))
            accesses = {FORWARD: forward.access, BACKWARD: terms.access}
            m.d.comb += mover.idle.eq(forward.idle)
        begin = 0
        for kinds, access in accesses.items():
            part = slice(begin, begin := begin + len(kinds))
            m.d.comb += [
                getattr(access, name).eq(getattr(mover.access, name))
                for name in ("active", "group", "lane", "word")
            ]
            m.d.comb += access.write.eq(mover.access.write[part])
            m.d.comb += [
                row.eq(source) for row, source in zip(list(mover.access.read)[part], access.read, strict=True)
            ]
        return m

    def _send(self, m: Module, results: Any) -> None:
        """Send results to the next layer, to memory, or to both, by their flags."""
        outputs = [self.outputs, *([self.save] if self.layer.saved_words else [])]
        m.submodules.fork = fork = StreamFork(shape=results.payload.shape(), outputs=len(outputs))
        connect_typed(m, results, fork.i)
        for sink, branch, flag in zip(outputs, fork.o, ("output", "save"), strict=False):
            enabled = branch.payload[flag]
            m.d.comb += [
                sink.payload.eq(branch.payload.words),
                sink.valid.eq(branch.valid & enabled),
                branch.ready.eq(sink.ready | ~enabled),
            ]
