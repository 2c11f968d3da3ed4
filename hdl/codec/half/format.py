"""Format of separate 16-bit values: blocks of one value, without a scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.lib import data, wiring

from fanin.codec.facts import CONFIGS, Codec, Half
from fanin.codec.formats import Rounding
from fanin.hdl.codec.blocks.format import BlockFormat
from fanin.hdl.codec.half.decoder import HalfDecoder, decoder_latency
from fanin.hdl.codec.minifloat import encoder
from fanin.hdl.codec.minifloat.encoder import MinifloatEncoder, minifloat_value


def half_config(codec: Codec, rounding: Rounding = Rounding.NEAREST) -> Half:
    """Return the parameters of a 16-bit codec. Raises ValueError for another codec."""
    kind: Any = CONFIGS.get(codec)
    if kind is None or not issubclass(kind, Half):
        raise ValueError(f"codec must be bf16 or fp16, not {codec!s}")
    config: Half = kind(rounding)
    return config


@dataclass(frozen=True)
class HalfFormat(BlockFormat):
    """Values of 16 bits with the parameters of ``config``."""

    config: Half

    block = 1
    scale_bits = 0
    exponent_bits = 0
    encoder_latency = encoder.LATENCY

    @property
    def decoder_latency(self) -> int:
        """Cycles of the decoder."""
        return decoder_latency(self.config.layout)

    @property
    def code_bits(self) -> int:
        """Bits of a value's code."""
        return self.config.code_bits

    @property
    def is_stochastic(self) -> bool:
        """True with stochastic rounding."""
        return self.config.rounding is Rounding.STOCHASTIC

    @property
    def value(self) -> data.StructLayout:
        """Layout of a value: its fraction has the code's bits and the cut-off ones that rounding needs."""
        return minifloat_value(self.config.layout, self.config.rounding)

    def scale_of(self, exponent: Any) -> Any:
        """Return nothing: there is no scale."""
        return exponent

    def decoded_scale(self, scale: Any) -> Any:
        """Return nothing: there is no scale."""
        return scale

    def encoder(self) -> wiring.Component:
        """Return an encoder of one value."""
        return MinifloatEncoder(layout=self.config.layout, rounding=self.config.rounding)

    def decoder(self) -> wiring.Component:
        """Return a decoder of one value."""
        return HalfDecoder(layout=self.config.layout)
