"""Format of MX blocks: the scale is the exponent of the largest value less that of the largest element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Mux
from amaranth.lib import data, wiring

from fanin.codec.facts import EXPONENT_BITS, FRACTION_BITS, Mx
from fanin.codec.formats import SCALE_BITS, SCALE_NAN, Element, Minifloat, Rounding
from fanin.hdl.arith.select import lookup
from fanin.hdl.codec.blocks.format import BlockFormat
from fanin.hdl.codec.minifloat import encoder
from fanin.hdl.codec.minifloat.encoder import BLOCK_EXPONENT_BITS, MinifloatEncoder, minifloat_value
from fanin.hdl.codec.mx import decoder
from fanin.hdl.codec.mx.decoder import MxDecoder


@dataclass(frozen=True)
class MxFormat(BlockFormat):
    """MX with the parameters of ``config``. The highest bit of a block's exponent marks a block of NaN."""

    config: Mx

    exponent_bits = BLOCK_EXPONENT_BITS
    scale_bits = SCALE_BITS
    encoder_latency = encoder.LATENCY
    decoder_latency = decoder.LATENCY

    @property
    def _layout(self) -> Minifloat:
        return self.config.element.layout

    @property
    def block(self) -> int:
        """Values of a block."""
        return self.config.block

    @property
    def code_bits(self) -> int:
        """Bits of an element."""
        return self.config.code_bits

    @property
    def is_stochastic(self) -> bool:
        """True with stochastic rounding."""
        return self.config.rounding is Rounding.STOCHASTIC

    @property
    def value(self) -> data.StructLayout:
        """Layout of a value: its fraction has the element's bits and the cut-off ones that rounding needs."""
        return minifloat_value(self._layout, self.config.rounding)

    def is_nan(self, bits: Any) -> Any:
        """Return whether a value makes its block NaN.

        INT8's scale of an infinity would be the code of NaN, so an infinity does so, too.
        """
        if self.config.element is Element.INT8:
            return bits[FRACTION_BITS : FRACTION_BITS + EXPONENT_BITS].all()
        return super().is_nan(bits)

    def exponent(self, value: Any) -> Any:
        """Return a value's exponent field, with the mark of NaN above it."""
        return Cat(value.exponent, value.nan)

    def limited(self, exponent: Any) -> Any:
        """Return the exponent, at least that of the largest element, so that the scale is at least 0."""
        least = self._layout.max_exponent
        field = lookup([max(value, least) for value in range(1 << EXPONENT_BITS)], exponent[:EXPONENT_BITS])
        return Cat(field, exponent[-1])

    def scale_of(self, exponent: Any) -> Any:
        """Return the scale of a block with this limited exponent."""
        scale = (exponent[:EXPONENT_BITS] - self._layout.max_exponent)[:SCALE_BITS]
        return Mux(exponent[-1], SCALE_NAN, scale)

    def decoded_scale(self, scale: Any) -> Any:
        """Return the scale itself."""
        return scale

    def encoder(self) -> wiring.Component:
        """Return an encoder of an element."""
        return MinifloatEncoder(layout=self._layout, rounding=self.config.rounding, scaled=True)

    def decoder(self) -> wiring.Component:
        """Return a decoder of an element."""
        return MxDecoder(element=self.config.element)
