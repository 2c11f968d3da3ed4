"""Format of a codec of blocks, as the shared parts of its hardware need it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from amaranth import Cat
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import EXPONENT_BITS, FLOAT_BITS, FRACTION_BITS
from fanin.codec.formats import RANDOM_BITS


def value_layout(fraction_bits: int, *, sticky: bool = True, nan: bool = False) -> data.StructLayout:
    """Return the layout of the bits of a value that its code depends on.

    ``fraction``: the upper ``fraction_bits`` of the fraction.
    ``sticky``, if present: OR of the other fraction bits.
    ``exponent``, ``nan``, ``sign``: exponent field; 1 for a NaN, if present; sign.
    """
    members = {"fraction": fraction_bits} | ({"sticky": 1} if sticky else {}) | {"exponent": EXPONENT_BITS}
    return data.StructLayout(members | ({"nan": 1} if nan else {}) | {"sign": 1})


class BlockFormat(ABC):
    """Format of blocks of ``block`` values. A block is a scale of ``scale_bits``, then a code for each value.

    The scale is a function of the block's *exponent*: the largest of its values, limited by :meth:`limited`.
    Formats of separate values have a block of 1, no scale and no exponent.
    """

    exponent_bits = EXPONENT_BITS  #: bits of a block's exponent; 0 without a scale
    encoder_latency: int  #: cycles of the encoder, at least 2

    @property
    @abstractmethod
    def block(self) -> int:
        """Values of a block."""

    @property
    @abstractmethod
    def scale_bits(self) -> int:
        """Bits of a block's scale in the compressed stream."""

    @property
    @abstractmethod
    def code_bits(self) -> int:
        """Bits of a value's code."""

    @property
    @abstractmethod
    def decoder_latency(self) -> int:
        """Cycles of the decoder."""

    @property
    def is_stochastic(self) -> bool:
        """True if the encoder takes random bits."""
        return False

    @property
    def block_bits(self) -> int:
        """Bits of a block: its scale and its codes."""
        return self.scale_bits + self.block * self.code_bits

    @property
    @abstractmethod
    def value(self) -> data.StructLayout:
        """Layout of a value at the encoder: a :func:`value_layout`."""

    def is_nan(self, bits: Any) -> Any:
        """Return whether a binary32 value is marked as NaN, if the layout of values has that mark."""
        fraction, exponent = bits[:FRACTION_BITS], bits[FRACTION_BITS : FRACTION_BITS + EXPONENT_BITS]
        return exponent.all() & fraction.any()

    def reduced(self, bits: Any) -> Any:
        """Return the bits of a binary32 value that its code depends on, in the layout of values."""
        dropped_bits = FRACTION_BITS - self.value["fraction"].width
        fields = {
            "fraction": bits[dropped_bits:FRACTION_BITS],
            "sticky": bits[:dropped_bits].any(),
            "exponent": bits[FRACTION_BITS : FRACTION_BITS + EXPONENT_BITS],
            "nan": self.is_nan(bits),
            "sign": bits[-1],
        }
        return Cat(fields[name] for name in self.value.members)

    def exponent(self, value: Any) -> Any:
        """Return the number of ``exponent_bits`` whose maximum over a block is the block's exponent."""
        return value.exponent

    def limited(self, exponent: Any) -> Any:
        """Return a block's exponent in the range of the scales; larger exponents have no smaller results."""
        return exponent

    @abstractmethod
    def scale_of(self, exponent: Any) -> Any:
        """Return the scale that is sent for a block's limited exponent."""

    @abstractmethod
    def decoded_scale(self, scale: Any) -> Any:
        """Return the 8 bits by which a decoder scales a block, from the scale that was sent."""

    @abstractmethod
    def encoder(self) -> wiring.Component:
        """Return an encoder of one value, with the members of :func:`encoder_members`."""

    @abstractmethod
    def decoder(self) -> wiring.Component:
        """Return a decoder of one value, with the members of :func:`decoder_members`."""


def encoder_members(
    *, value: data.StructLayout, exponent_bits: int, code_bits: int, random: bool = False
) -> dict[str, Any]:
    """Return the members of an encoder of one value, which advances in cycles with ``enable``.

    ``random``: the encoder rounds stochastically; it takes the random bits in its last cycle.
    """
    members = {"i": In(value)}
    if exponent_bits:
        members["exponent"] = In(exponent_bits)
    if random:
        members["random"] = In(RANDOM_BITS)
    return members | {"enable": In(1), "o": Out(code_bits)}


def decoder_members(*, code_bits: int, scaled: bool) -> dict[str, Any]:
    """Return the members of a decoder of one value, which advances in cycles with ``enable``."""
    scale = {"scale": In(EXPONENT_BITS)} if scaled else {}
    return {"i": In(code_bits)} | scale | {"enable": In(1), "o": Out(FLOAT_BITS)}
