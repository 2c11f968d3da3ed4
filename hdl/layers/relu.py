"""Rectifiers, which save a bit or a word of each output for the backward pass."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Value
from amaranth.lib import data, wiring

from fanin.cnn.layers import relu, relu6
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Parallelism
from fanin.codec.facts import FRACTION_BITS, SPECIAL_EXPONENT
from fanin.hdl.layers.gearbox import Gearbox
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.layers.raster import give_and_save
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_bits, connect_typed

_INFINITY = SPECIAL_EXPONENT << FRACTION_BITS
_SIX = 0x40C00000


class Relu(wiring.Component):
    """ReLU: max(x, +0) of every word; a NaN passes. The gradient passes where the output is above 0, or NaN.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients``, ``save``, ``replay`` : present if ``layer.gradient``
        Mode TRAIN saves a bit of each output, high if its gradient passes, or the outputs if not
        ``layer.masked``. The replay joins each with its gradient.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.relu.Relu``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    1 cycle each way; one transfer a cycle. All outputs are registered. A mask leaves ``save`` 1 cycle after the
    output that completes it, and meets its first gradient 1 cycle after ``replay`` has taken it.

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
        outputs = data.View(features.payload.shape(), rectified)
        saved, packer = rectified, None
        if self.layer.saves_masks:
            saved = Cat(self._passes(y) for y in outputs)
            packer = self._gearbox(self.parallelism.po, self._mask_bits)
        m.d.comb += features.ready.eq(give_and_save(m, self, rectified, saved, features.valid, packer))
        if self.layer.gradient:
            self._backward(m)
        return m

    @property
    def _mask_bits(self) -> int:
        """Bits of a transfer of masks to and from memory."""
        return WORD_BITS * self.layer.save_lanes(self.parallelism)

    def _gearbox(self, source: int, target: int) -> Gearbox:
        """Return a converter between transfers of a frame's masks, one bit an output."""
        return Gearbox(source=source, target=target, frame=self.layer.output.words, word_bits=1)

    def _backward(self, m: Module) -> None:
        """Pair each gradient with its saved bit or output; replace the gradient by 0 if it does not pass."""
        m.submodules.passed = passed = RegisterSlice(shape=self.gradients.payload.shape())
        connect_typed(m, passed.o, wiring.flipped(self.input_gradients[0]))
        gradients, saved = self.gradients, self.replay
        if self.layer.saves_masks:
            m.submodules.unpacker = unpacker = self._gearbox(self._mask_bits, self.parallelism.po)
            connect_bits(m, self.replay, unpacker.i)
            saved = unpacker.o
        pairs = zip(gradients.payload, saved.payload, strict=True)
        m.d.comb += [
            passed.i.payload.eq(
                Cat(Mux(y if self.layer.saves_masks else self._passes(y), dy, 0) for dy, y in pairs)
            ),
            passed.i.valid.eq(gradients.valid & saved.valid),
            gradients.ready.eq(passed.i.ready & saved.valid),
            saved.ready.eq(passed.i.ready & gradients.valid),
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
        Mode TRAIN saves a bit of each output, high if its gradient passes, or the outputs if not
        ``layer.masked``. The replay joins each with its gradient.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.relu6.Relu6``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    1 cycle each way; one transfer a cycle. All outputs are registered. A mask leaves ``save`` 1 cycle after the
    output that completes it, and meets its first gradient 1 cycle after ``replay`` has taken it.

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
