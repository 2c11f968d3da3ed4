"""What blocks are to a stream of words: how many a word has, or how many words a block."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from amaranth.lib import data

from fanin.codec.facts import EXPONENT_BITS, FLOAT_BITS, Bfp

WIDTHS = (256, 512)


@dataclass(frozen=True)
class Words:
    """Words of ``width`` bits of binary32 values, and the pieces of the compressed stream that they become.

    A word of whole blocks becomes a piece of their exponents and codes. A block of several words begins with
    a piece of its exponent and the first word's codes; the other words' pieces have codes only. Every piece,
    but the last of a frame, is a whole number of grains, which are bytes or parts of them.

    Raises ValueError that names the parameter, the value and the limit.
    """

    width: int
    config: Bfp

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise ValueError(f"width must be 256 or 512 bits, not {self.width!r}")

    @property
    def lanes(self) -> int:
        """Values of a word."""
        return self.width // FLOAT_BITS

    @property
    def blocks(self) -> int:
        """Exponents of a word: blocks that it has, or 1."""
        return max(1, self.lanes // self.config.block)

    @property
    def per_block(self) -> int:
        """Words of a block: 1 if a word has blocks."""
        return max(1, self.config.block // self.lanes)

    @property
    def exponent_bits(self) -> int:
        """Bits of a word's exponents."""
        return self.blocks * self.config.exponent

    @property
    def code_bits(self) -> int:
        """Bits of a word's codes: whole bytes."""
        return self.lanes * self.config.code_bits

    @property
    def piece_bits(self) -> int:
        """Bits of a piece with its exponents."""
        return self.exponent_bits + self.code_bits

    @property
    def grain(self) -> int:
        """Bits: 8, or 4, 2 or 1 where exponents are no whole bytes."""
        return gcd(8, self.exponent_bits)

    @property
    def whole_bytes(self) -> bool:
        """Whether every piece begins with a byte."""
        return self.grain == 8

    @property
    def phase_bits(self) -> int:
        """Bits that say at which grain of a byte a piece begins: 0 to 3."""
        return (8 // self.grain - 1).bit_length()

    @property
    def spanned_bytes(self) -> int:
        """Most bytes in which a piece has a part."""
        return -(-(8 - self.grain + self.piece_bits) // 8)

    def grains_of(self, blocks: int) -> int:
        """Grains of a frame's last piece when its word has only so many blocks."""
        bits = self.piece_bits if self.per_block > 1 else blocks * self.config.block_bits
        return -(-bits // self.grain)


def reduced_layout(mantissa: int) -> data.StructLayout:
    """As much of a value as its code depends on: ``sticky`` stands for the fraction bits below ``fraction``."""
    return data.StructLayout({"fraction": mantissa, "sticky": 1, "exponent": EXPONENT_BITS, "sign": 1})


def word_layout(words: Words) -> data.StructLayout:
    """A word of reduced values: the blocks ``present`` in it, its place in its block, the frame's ``last``."""
    members = {"values": data.ArrayLayout(reduced_layout(words.config.mantissa), words.lanes)}
    return data.StructLayout(members | {"present": words.blocks, "first": 1, "end": 1, "last": 1})


def scaled_layout(words: Words) -> data.StructLayout:
    """A word and the exponents of its blocks."""
    exponents = data.ArrayLayout(EXPONENT_BITS, words.blocks)
    return data.StructLayout({"word": word_layout(words), "exponents": exponents})


def coded_layout(words: Words) -> data.StructLayout:
    """A piece of a frame: the lowest ``count`` grains of ``data``, the first lowest; ``last`` ends the frame.

    Of whole bytes it is a piece of ``fanin.hdl.codec.packer``. Of a last piece what is beyond is zero.
    """
    members = {"data": words.piece_bits, "count": range(words.piece_bits // words.grain + 1), "last": 1}
    return data.StructLayout(members)
