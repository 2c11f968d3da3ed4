"""Concatenation of the channels of several feature maps."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import flipped

from fanin.cnn.layers import concat
from fanin.cnn.layers.layer import Parallelism
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed


class Concat(wiring.Component):
    """Concatenation of the channels of all inputs, position by position; the gradient is split the same way.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients`` : present if ``layer.gradient``
        ``input_gradients`` follow ``gradients`` within the cycle.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.concat.Concat``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    1 cycle forward, 0 backward; one transfer a cycle.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, layer: concat.Concat, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        super().__init__(layer_members(layer, parallelism))

    def elaborate(self, platform: Any) -> Module:
        """Register the words of the input whose turn it is; the other inputs wait."""
        m = Module()
        m.submodules.slice = output_slice = RegisterSlice(shape=self.outputs.payload.shape())
        connect_typed(m, output_slice.o, flipped(self.outputs))
        turn = self._turns(m, output_slice.i.valid & output_slice.i.ready, name="forward")
        m.d.comb += output_slice.i.valid.eq((Cat(port.valid for port in self.features) & turn).any())
        for port, has_turn in zip(self.features, turn, strict=True):
            m.d.comb += port.ready.eq(output_slice.i.ready & has_turn)
            with m.If(has_turn):
                m.d.comb += output_slice.i.payload.eq(port.payload)
        if self.layer.gradient:
            gradients = self.gradients
            turn = self._turns(m, gradients.valid & gradients.ready, name="backward")
            m.d.comb += gradients.ready.eq((Cat(port.ready for port in self.input_gradients) & turn).any())
            for port, has_turn in zip(self.input_gradients, turn, strict=True):
                m.d.comb += [port.payload.eq(gradients.payload), port.valid.eq(gradients.valid & has_turn)]
        return m

    def _turns(self, m: Module, step: Any, *, name: str) -> Signal:
        """Return the one-hot turn; each input's turn lasts its number of transfers per position."""
        last = [shape.c // self.parallelism.pi - 1 for shape in self.layer.inputs]
        turn = Signal(len(last), init=1, name=f"{name}_turn")
        # Transfers of the turn after the current one.
        transfers_left = Signal(range(max(last) + 1), init=last[0], name=f"{name}_left")
        with m.If(step):
            m.d.sync += transfers_left.eq(transfers_left - 1)
            with m.If(transfers_left == 0):
                m.d.sync += turn.eq(turn.rotate_left(1))
                for has_turn, next_last in zip(turn, [*last[1:], last[0]], strict=True):
                    with m.If(has_turn):
                        m.d.sync += transfers_left.eq(next_last)
        return turn
