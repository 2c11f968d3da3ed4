"""Format of block floating point: exponents limited to the format's range, encoded, and decoded.

With an exponent of 8 bits all three are wires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.lib import data, wiring

from fanin.codec.facts import EXPONENT_BITS, SPECIAL_EXPONENT, Bfp
from fanin.hdl.arith.select import lookup
from fanin.hdl.codec.bfp import decoder, encoder
from fanin.hdl.codec.bfp.decoder import BfpDecoder
from fanin.hdl.codec.bfp.encoder import BfpEncoder
from fanin.hdl.codec.blocks.format import BlockFormat, value_layout

_ALL = range(1 << EXPONENT_BITS)


@dataclass(frozen=True)
class BfpFormat(BlockFormat):
    """Block floating point with the parameters of ``config``."""

    config: Bfp

    encoder_latency = encoder.LATENCY
    decoder_latency = decoder.LATENCY

    @property
    def block(self) -> int:
        """Values of a block."""
        return self.config.block

    @property
    def scale_bits(self) -> int:
        """Bits of an exponent code."""
        return self.config.exponent

    @property
    def code_bits(self) -> int:
        """Bits of a value: sign and magnitude."""
        return self.config.code_bits

    @property
    def value(self) -> data.StructLayout:
        """Layout of a value: its fraction has as many bits as a magnitude."""
        return value_layout(self.config.mantissa)

    def _nearest(self, exponent: int) -> int:
        config = self.config
        return exponent if exponent == SPECIAL_EXPONENT else min(max(exponent, config.lowest), config.highest)

    def _code(self, exponent: int) -> int:
        return self.config.special if exponent == SPECIAL_EXPONENT else exponent - self.config.lowest

    def limited(self, exponent: Any) -> Any:
        """Return the nearest exponent that has a code; keeps the order. Each bit is a function of 8 bits."""
        if not self.config.is_narrow:
            return exponent
        return lookup([self._nearest(value) for value in _ALL], exponent)

    def scale_of(self, exponent: Any) -> Any:
        """Return the code of the nearest exponent that has one. Each bit is a function of 8 bits."""
        if not self.config.is_narrow:
            return exponent
        return lookup([self._code(self._nearest(value)) for value in _ALL], exponent)

    def decoded_scale(self, scale: Any) -> Any:
        """Return the exponent of a code. Each bit is a function of at most 7 bits."""
        if not self.config.is_narrow:
            return scale
        return lookup([*range(self.config.lowest, self.config.highest + 1), SPECIAL_EXPONENT], scale)

    def encoder(self) -> wiring.Component:
        """Return an encoder of one value."""
        return BfpEncoder(mantissa=self.config.mantissa, saturates=self.config.is_narrow)

    def decoder(self) -> wiring.Component:
        """Return a decoder of one value."""
        return BfpDecoder(mantissa=self.config.mantissa)
