"""What blocks are to a stream of words: how many a word has, or how many words a block."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.lib import data

from fanin.codec import EXPONENT_BITS, FLOAT_BITS, Bfp

WIDTHS = (256, 512)


@dataclass(frozen=True)
class Words:
    """Words of ``width`` bits of binary32 values, and the pieces of the compressed stream that they become.

    A word of whole blocks becomes a piece of their exponents and codes. A block of several words begins with
    a piece of its exponent and the first word's codes; the other words' pieces have codes only. Every piece
    is a whole number of bytes.

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
    def code_bytes(self) -> int:
        """Bytes of a word's codes."""
        return self.lanes * self.config.code_bits // 8

    @property
    def piece_bytes(self) -> int:
        """Bytes of a piece with its exponents."""
        return self.blocks + self.code_bytes

    def bytes_of(self, blocks: int) -> int:
        """Bytes of a frame's last piece when its word has only so many blocks."""
        if self.per_block > 1:
            return self.piece_bytes
        return -(-blocks * self.config.block_bits // 8)


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
