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
    """max(x, +0) of every word; a NaN passes. The gradient passes where the output is above 0, or NaN.

    Members
    -------
    ``features``, ``outputs``, ``control`` : as ``fanin.hdl.layers.interface`` has them
    ``gradients``, ``input_gradients``, ``save``, ``replay`` : likewise, where ``layer.gradient``
        The outputs are saved, in mode TRAIN; what comes back meets its gradient.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.relu.Relu``
    ``parallelism`` : ``Parallelism``, of which ``pi`` and ``po`` are equal

    Latency
    -------
    1 cycle each way; one transfer a cycle. All outputs are registered.

    Source
    ------
    docs/systems/cluster.md, "Numbers".
    """

    def __init__(self, *, layer: relu.Relu, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        super().__init__(layer_members(layer, parallelism))

    def elaborate(self, platform: Any) -> Module:
        """Registers behind each way: a register slice per stream that leaves."""
        m = Module()
        (features,) = self.features
        rectified = Cat(self._rectified(word) for word in features.payload)
        m.d.comb += features.ready.eq(give_and_save(m, self, rectified, rectified, features.valid))
        if self.layer.gradient:
            self._backward(m)
        return m

    def _backward(self, m: Module) -> None:
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
        """``y`` is an output, hence never below 0; a subnormal counts as a zero."""
        return y[FRACTION_BITS:].any()


class Relu6(Relu):
    """min(max(x, +0), 6) of every word; a NaN passes. The gradient passes where the output is inside, or NaN.

    Members
    -------
    ``features``, ``outputs``, ``control`` : as ``fanin.hdl.layers.interface`` has them
    ``gradients``, ``input_gradients``, ``save``, ``replay`` : likewise, where ``layer.gradient``
        The outputs are saved, in mode TRAIN; what comes back meets its gradient.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.relu6.Relu6``
    ``parallelism`` : ``Parallelism``, of which ``pi`` and ``po`` are equal

    Latency
    -------
    1 cycle each way; one transfer a cycle. All outputs are registered.

    Source
    ------
    docs/systems/cluster.md, "Numbers".
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
