"""Rectifiers."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Value
from amaranth.lib import wiring

from fanin.cnn.layers import relu, relu6
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Parallelism
from fanin.codec.facts import FRACTION_BITS, SPECIAL_EXPONENT
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.layers.raster import give_and_save
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.join import StreamJoin

_INFINITY = SPECIAL_EXPONENT << FRACTION_BITS
_SIX = 0x40C00000


class Relu(wiring.Component):
    """ReLU: max(x, +0) of every word; a NaN passes. The gradient passes where the output is above 0, or NaN.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients``, ``save``, ``replay`` : present if ``layer.gradient``
        Mode TRAIN saves the outputs; the replay joins each output with its gradient.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.relu.Relu``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    1 cycle each way; one transfer a cycle. All outputs are registered.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, layer: relu.Relu, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        super().__init__(layer_members(layer, parallelism))

    def elaborate(self, platform: Any) -> Module:
        """Register each outgoing stream with a register slice."""
        m = Module()
        (features,) = self.features
        rectified = Cat(self._rectified(word) for word in features.payload)
        m.d.comb += features.ready.eq(give_and_save(m, self, rectified, rectified, features.valid))
        if self.layer.gradient:
            self._backward(m)
        return m

    def _backward(self, m: Module) -> None:
        """Join each gradient with the saved output; replace the gradient by 0 if it does not pass."""
        words = self.gradients.payload.shape()
        m.submodules.join = join = StreamJoin(shape=words)
        m.submodules.passed = passed = RegisterSlice(shape=words)
        connect_typed(m, wiring.flipped(self.gradients), join.i[0])
        connect_typed(m, wiring.flipped(self.replay), join.i[1])
        connect_typed(m, passed.o, wiring.flipped(self.input_gradients[0]))
        gradients, outputs = join.o.payload
        m.d.comb += [
            passed.i.payload.eq(
                Cat(Mux(self._passes(y), dy, 0) for dy, y in zip(gradients, outputs, strict=True))
            ),
            passed.i.valid.eq(join.o.valid),
            join.o.ready.eq(passed.i.ready),
        ]

    @staticmethod
    def _rectified(x: Value) -> Value:
        return Mux(x[-1] & ~_is_nan(x), 0, x)

    @staticmethod
    def _passes(y: Value) -> Value:
        """Return whether the gradient of output ``y``, never below 0, passes; a subnormal counts as zero."""
        return y[FRACTION_BITS:].any()


class Relu6(Relu):
    """ReLU6: min(max(x, +0), 6); a NaN passes. The gradient passes where 0 < output < 6, or the output is NaN.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients``, ``save``, ``replay`` : present if ``layer.gradient``
        Mode TRAIN saves the outputs; the replay joins each output with its gradient.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.relu6.Relu6``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    1 cycle each way; one transfer a cycle. All outputs are registered.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, layer: relu6.Relu6, parallelism: Parallelism):
        super().__init__(layer=layer, parallelism=parallelism)

    @staticmethod
    def _rectified(x: Value) -> Value:
        positive = Mux((x[:-1] > _SIX) & ~_is_nan(x), _SIX, x)
        return Mux(x[-1] & ~_is_nan(x), 0, positive)

    @staticmethod
    def _passes(y: Value) -> Value:
        return y[FRACTION_BITS:].any() & (y != _SIX)


def _is_nan(x: Value) -> Value:
    return x[: WORD_BITS - 1] > _INFINITY
