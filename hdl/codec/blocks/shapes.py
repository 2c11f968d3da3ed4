"""Data layouts of codecs of blocks: words, blocks in a word or words in a block, pieces."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from amaranth.lib import data

from fanin.codec.facts import FLOAT_BITS
from fanin.codec.formats import LFSR_BITS
from fanin.hdl.codec.blocks.format import BlockFormat

WIDTHS = (256, 512)


@dataclass(frozen=True)
class Words:
    """Format of words of binary32 values and of the pieces of the compressed stream that they become.

    A word of whole blocks becomes a piece of their scales and codes. A block of several words begins with a
    piece of its scale and the first word's codes; pieces of its other words have only codes. Every piece
    except the last of a frame is a whole number of grains; a grain is a byte or a part of one.

    Raises ValueError with the parameter, its value and its limits.
    """

    width: int
    format: BlockFormat

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise ValueError(f"width must be 256 or 512 bits, not {self.width!r}")

    @property
    def lanes(self) -> int:
        """Values of a word."""
        return self.width // FLOAT_BITS

    @property
    def blocks(self) -> int:
        """Blocks of a word, at least 1: a part of a block counts."""
        return max(1, self.lanes // self.format.block)

    @property
    def per_block(self) -> int:
        """Words of a block: 1 if a word contains whole blocks."""
        return max(1, self.format.block // self.lanes)

    @property
    def scale_bits(self) -> int:
        """Bits of a word's scales."""
        return self.blocks * self.format.scale_bits

    @property
    def code_bits(self) -> int:
        """Bits of a word's codes: whole bytes."""
        return self.lanes * self.format.code_bits

    @property
    def piece_bits(self) -> int:
        """Bits of a piece with its scales."""
        return self.scale_bits + self.code_bits

    @property
    def grain(self) -> int:
        """Bits of a grain: 8, or 4, 2 or 1 if scales are not whole bytes."""
        return gcd(8, self.scale_bits)

    @property
    def whole_bytes(self) -> bool:
        """True if every piece begins at a byte."""
        return self.grain == 8

    @property
    def unit(self) -> int:
        """Grains of which each piece except a frame's last has a multiple: a power of two, at most a word."""
        code_bits = self.code_bits if self.per_block > 1 else 0
        return gcd(self.width, self.piece_bits, code_bits) // self.grain

    @property
    def phase_bits(self) -> int:
        """Bits of the index of a piece's first grain in its byte, 0 to 3."""
        return (8 // self.grain - 1).bit_length()

    @property
    def spanned_bytes(self) -> int:
        """Largest number of bytes that a piece extends over."""
        return -(-(8 - self.grain + self.piece_bits) // 8)

    def grains_of(self, blocks: int) -> int:
        """Return the grains of a frame's last piece if its word has only ``blocks`` blocks."""
        bits = self.piece_bits if self.per_block > 1 else blocks * self.format.block_bits
        return -(-bits // self.grain)


def word_layout(words: Words) -> data.StructLayout:
    """Return the layout of a word of values.

    ``values``: the bits of the values that their codes depend on.
    ``present``: blocks that the frame has in this word.
    ``first``, ``end``: the word is the first or last of its block.
    ``last``: the word is the frame's last.
    ``random``, for stochastic rounding: state of the shift register at the word's first random bit.
    """
    members = {"values": data.ArrayLayout(words.format.value, words.lanes)}
    random = {"random": LFSR_BITS} if words.format.is_stochastic else {}
    return data.StructLayout(members | {"present": words.blocks, "first": 1, "end": 1, "last": 1} | random)


def scaled_layout(words: Words) -> data.StructLayout:
    """Return the layout of a word and the exponents of its blocks, if the format has exponents."""
    exponents = data.ArrayLayout(words.format.exponent_bits, words.blocks)
    return data.StructLayout({"word": word_layout(words), "exponents": exponents})


def coded_layout(words: Words) -> data.StructLayout:
    """Return the layout of a piece: the lowest ``count`` grains of ``data``, the first grain lowest.

    ``last`` ends the frame; bits of a last piece beyond ``count`` are zero. If a grain is a byte, the piece is
    one of ``fanin.hdl.codec.packer``.
    """
    members = {"data": words.piece_bits, "count": range(words.piece_bits // words.grain + 1), "last": 1}
    return data.StructLayout(members)
