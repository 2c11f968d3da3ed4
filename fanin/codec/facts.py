"""Gradient codecs: parameters, tags and limits, declared once for RTL, NumPy and docs
(docs/systems/codec.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from typing import ClassVar, Self

from fanin.codec.formats import BFLOAT16, BINARY16, SCALE_BITS, Element, Minifloat, Rounding

FLOAT_BITS = 32
EXPONENT_BITS = 8
FRACTION_BITS = 23  # of binary32, without the leading one
EXPONENT_BIAS = 127  # the exponent of 1.0
SPECIAL_EXPONENT = 255  # infinities and NaN
QUIET_NAN = 0x7FC00000  # the only NaN that arithmetic and BFP return

MIN_BOUND, MAX_BOUND = 1, 15  # error bound 2^-b
GROUPS = (8, 16)  # values of a group: a 256-bit and a 512-bit burst
BLOCKS = (4, 8, 16, 32, 64)  # values of a BFP block
MX_BLOCKS = (16, 32, 64)  # values of an MX block; the specification's is 32
MIN_MANTISSA, MAX_MANTISSA = 3, 15  # bits of a BFP magnitude, its leading one among them
MIN_EXPONENT, MAX_EXPONENT = 1, EXPONENT_BITS  # bits of a BFP block's exponent
MAX_OFFSET = 31  # powers of two by which a narrow exponent's range can lie below IEEE 754's

MAX_FRAME = 9216  # bytes, default of INCEPTIONN's NIC: longer frames, also restored ones, are dropped

TOS_COMPRESSIBLE = 0x28  # set by the host to request compression; also marks compressed packets on the wire
TOS_RAW = 0x2C  # on the wire only: compression was requested, but the packet would not have shrunk


class Tag(IntEnum):
    """Form in which a value is sent (INCEPTIONN, algorithm 2)."""

    ZERO = 0b00
    BITS8 = 0b01
    BITS16 = 0b10
    RAW = 0b11


TAG_BITS = 2
_LARGE_GROUP = 0x80  # bit of the mode's byte
_OFFSET_AT, _NARROWER_AT = 3, 4  # bits of BFP's bytes of parameters
_STOCHASTIC = 0x80  # bit of the second byte of parameters
TAG_BYTES = {Tag.ZERO: 0, Tag.BITS8: 1, Tag.BITS16: 2, Tag.RAW: 4}  # bytes of the value after the tag
SHORT_FRACTION = {Tag.BITS8: 7, Tag.BITS16: 15}  # fraction bits that a short form keeps


class Mode(IntEnum):
    """Choice of a value's form, as encoded in the run-time register."""

    PUBLISHED = 0  # algorithm 2 to the letter; errors reach 2^-7 whatever the bound
    STRICT = 1  # the shortest form whose decoded value is within the bound


class Codec(StrEnum):
    """Codec of gradients on the wire; ``id`` is its number in the ring's header."""

    NONE = "none"
    INCEPTIONN = "inceptionn"
    BFP = "bfp"
    MX = "mx"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def id(self) -> int:
        """Number of the codec on the wire."""
        return list(Codec).index(self)


@dataclass(frozen=True)
class Inceptionn:
    """Parameters of the error-bounded codec: error bound 2^-``bound``, mode, values per group.

    Raises ValueError that names the parameter, the value and the limit.
    """

    kind: ClassVar[Codec] = Codec.INCEPTIONN

    bound: int = 10
    mode: Mode = Mode.STRICT
    group: int = 8

    def __post_init__(self) -> None:
        if self.bound not in range(MIN_BOUND, MAX_BOUND + 1):
            raise ValueError(f"bound must be from 2^-{MAX_BOUND} to 2^-{MIN_BOUND}, not 2^-{self.bound!r}")
        if self.group not in GROUPS:
            raise ValueError(f"group must be 8 or 16 values, not {self.group!r}")

    def __str__(self) -> str:
        return f"{self.kind}, 2^-{self.bound}, {self.mode.name.lower()}, group {self.group}"

    def pack(self) -> bytes:
        """Return the two bytes of parameters for a file's header."""
        return bytes([self.bound, self.mode | (_LARGE_GROUP if self.group == 16 else 0)])

    @classmethod
    def unpack(cls, parameters: Sequence[int]) -> Inceptionn:
        """Return the codec of two such bytes. Raises ValueError for invalid parameters."""
        bound, mode = parameters
        return cls(bound=bound, mode=Mode(mode & ~_LARGE_GROUP), group=16 if mode & _LARGE_GROUP else 8)

    def stream_limits(self, count: int) -> tuple[int, int]:
        """Return the least and most bytes of the stream of ``count`` values."""
        groups = -(-count // self.group)
        return groups * self.tag_bytes, groups * self.max_group_bytes

    def check_frame(self, *, lanes: int, frame_values: int) -> None:
        """Raise ValueError unless a word of ``lanes`` values is a group, so frames of words can be
        compressed.
        """
        if self.group != lanes:
            raise ValueError(f"group must be the lanes, {lanes}, not {self.group!r}")

    def max_word_bytes(self, lanes: int) -> int:
        """Return the most bytes of a word on the link: tags add to a word that does not compress."""
        return self.max_group_bytes

    @property
    def tag_bytes(self) -> int:
        """Bytes of the tags of a group."""
        return self.group * TAG_BITS // 8

    @property
    def max_group_bytes(self) -> int:
        """Bytes of a group that does not compress: 34 for 8 values, 68 for 16."""
        return self.tag_bytes + self.group * FLOAT_BITS // 8


@dataclass(frozen=True)
class Bfp:
    """Parameters of block floating point.

    - ``block``: values that share an exponent.
    - ``mantissa``: bits of a value's magnitude.
    - ``exponent``: bits of the exponent. An exponent of 8 bits is binary32's.
    - ``offset``: powers of two by which the range lies below IEEE 754's; 0 with an exponent of 8 bits.

    Code F of an exponent means the scale 2^(F - bias), where bias is IEEE 754's, 2^(exponent - 1) - 1, plus
    ``offset``. Raises ValueError that names the parameter, the value and the limit.
    """

    kind: ClassVar[Codec] = Codec.BFP

    block: int = 16
    mantissa: int = 7
    exponent: int = EXPONENT_BITS
    offset: int = 0

    def __post_init__(self) -> None:
        if self.block not in BLOCKS:
            raise ValueError(f"block must be one of {', '.join(map(str, BLOCKS))}, not {self.block!r}")
        if self.mantissa not in range(MIN_MANTISSA, MAX_MANTISSA + 1):
            raise ValueError(f"mantissa must be {MIN_MANTISSA} to {MAX_MANTISSA} bits, not {self.mantissa!r}")
        if self.exponent not in range(MIN_EXPONENT, MAX_EXPONENT + 1):
            raise ValueError(f"exponent must be {MIN_EXPONENT} to {MAX_EXPONENT} bits, not {self.exponent!r}")
        if not self.is_narrow and self.offset != 0:
            raise ValueError(f"offset must be 0 with an exponent of {MAX_EXPONENT} bits, not {self.offset!r}")
        if self.offset not in range(MAX_OFFSET + 1):
            raise ValueError(f"offset must be 0 to {MAX_OFFSET}, not {self.offset!r}")

    def __str__(self) -> str:
        narrow = f", exponent {self.exponent}, offset {self.offset}" if self.is_narrow else ""
        return f"{self.kind}, block {self.block}, mantissa {self.mantissa}{narrow}"

    def pack(self) -> bytes:
        """Return the two bytes of parameters for a file's header and the ring's.

        The second byte has ``mantissa`` in its low bits and 8 - ``exponent`` in its high bits. The first byte
        is ``block`` or, for a narrow exponent, log2(``block``) in its low bits and ``offset`` in its high bits.
        """
        first = self.offset << _OFFSET_AT | self.block.bit_length() - 1 if self.is_narrow else self.block
        return bytes([first, MAX_EXPONENT - self.exponent << _NARROWER_AT | self.mantissa])

    @classmethod
    def unpack(cls, parameters: Sequence[int]) -> Bfp:
        """Return the codec of two such bytes. Raises ValueError for invalid parameters."""
        first, second = parameters
        mantissa, narrower = second & (1 << _NARROWER_AT) - 1, second >> _NARROWER_AT
        if narrower == 0:
            return cls(block=first, mantissa=mantissa)
        block, offset = 1 << (first & (1 << _OFFSET_AT) - 1), first >> _OFFSET_AT
        return cls(block=block, mantissa=mantissa, exponent=MAX_EXPONENT - narrower, offset=offset)

    def stream_limits(self, count: int) -> tuple[int, int]:
        """Return the least and most bytes of the stream of ``count`` values; they are equal."""
        size = -(-(-(-count // self.block) * self.block_bits) // 8)
        return size, size

    def check_frame(self, *, lanes: int, frame_values: int) -> None:
        """Raise ValueError unless a frame of ``frame_values`` values is a whole number of blocks."""
        if frame_values % self.block:
            raise ValueError(f"block must divide a frame's {frame_values} values, not be {self.block!r}")

    def max_word_bytes(self, lanes: int) -> int:
        """Return the most bytes of a word on the link: at most those of the values themselves."""
        return lanes * FLOAT_BITS // 8

    @property
    def code_bits(self) -> int:
        """Bits of a value: sign and magnitude."""
        return 1 + self.mantissa

    @property
    def block_bits(self) -> int:
        """Bits of a block: its exponent and its values."""
        return self.exponent + self.block * self.code_bits

    @property
    def is_narrow(self) -> bool:
        """True if the exponent has fewer bits than binary32's, and therefore another range."""
        return self.exponent < EXPONENT_BITS

    @property
    def lowest(self) -> int:
        """Exponent of code 0 in binary32's coding, whose bias is 127."""
        return (1 << EXPONENT_BITS - 1) - (1 << self.exponent - 1) - self.offset

    @property
    def highest(self) -> int:
        """Exponent of the largest code of finite blocks in binary32's coding, whose bias is 127."""
        return self.lowest + self.special - 1

    @property
    def special(self) -> int:
        """The code of a block with infinities or NaN."""
        return (1 << self.exponent) - 1

    @property
    def ratio(self) -> float:
        """Compression ratio, the same for all data."""
        return self.block * FLOAT_BITS / self.block_bits


@dataclass(frozen=True)
class Mx:
    """Parameters of the OCP Microscaling formats: blocks of elements that share a power of two as scale.

    - ``element``: format of an element.
    - ``block``: values of a block. MX-compliant blocks have 32; 16 and 64 are an extension.
    - ``rounding``: rounding of a value to an element.

    Raises ValueError that names the parameter, the value and the limit.
    """

    kind: ClassVar[Codec] = Codec.MX

    element: Element = Element.E4M3
    block: int = 32
    rounding: Rounding = Rounding.NEAREST

    def __post_init__(self) -> None:
        if not isinstance(self.element, Element):
            raise ValueError(f"element must be one of {', '.join(Element)}, not {self.element!r}")
        if self.block not in MX_BLOCKS:
            raise ValueError(f"block must be one of {', '.join(map(str, MX_BLOCKS))}, not {self.block!r}")
        _check_rounding(self.rounding)

    def __str__(self) -> str:
        return f"{self.kind}, {self.element}, block {self.block}{_rounding_suffix(self.rounding)}"

    def pack(self) -> bytes:
        """Return the two bytes of parameters for a file's header and the ring's: block; number of the element,
        with bit 7 set for stochastic rounding.
        """
        return bytes([self.block, self.element.id | _pack_rounding(self.rounding)])

    @classmethod
    def unpack(cls, parameters: Sequence[int]) -> Mx:
        """Return the codec of two such bytes. Raises ValueError for invalid parameters."""
        block, second = parameters
        number = second & ~_STOCHASTIC
        if number >= len(Element):
            raise ValueError(f"number of an element must be below {len(Element)}, not {number}")
        return cls(element=list(Element)[number], block=block, rounding=_unpack_rounding(second))

    def stream_limits(self, count: int) -> tuple[int, int]:
        """Return the least and most bytes of the stream of ``count`` values; they are equal."""
        size = -(-count // self.block) * self.block_bits // 8
        return size, size

    def check_frame(self, *, lanes: int, frame_values: int) -> None:
        """Raise ValueError unless a frame of ``frame_values`` values is a whole number of blocks."""
        if frame_values % self.block:
            raise ValueError(f"block must divide a frame's {frame_values} values, not be {self.block!r}")

    def max_word_bytes(self, lanes: int) -> int:
        """Return the most bytes of a word on the link: at most those of the values themselves."""
        return lanes * FLOAT_BITS // 8

    @property
    def code_bits(self) -> int:
        """Bits of an element."""
        return self.element.layout.bits

    @property
    def block_bits(self) -> int:
        """Bits of a block: its scale and its elements; whole bytes."""
        return SCALE_BITS + self.block * self.code_bits

    @property
    def ratio(self) -> float:
        """Compression ratio, the same for all data."""
        return self.block * FLOAT_BITS / self.block_bits


@dataclass(frozen=True)
class Half:
    """Parameters of a codec of 16-bit floating-point values; base of ``Bf16`` and ``Fp16``.

    ``rounding``: rounding of a binary32 value. Raises ValueError for one that is no ``Rounding``.
    """

    kind: ClassVar[Codec]
    layout: ClassVar[Minifloat]

    rounding: Rounding = Rounding.NEAREST

    def __post_init__(self) -> None:
        _check_rounding(self.rounding)

    def __str__(self) -> str:
        return f"{self.kind}{_rounding_suffix(self.rounding)}"

    def pack(self) -> bytes:
        """Return the two bytes of parameters for a file's header and the ring's: 0; bit 7 set for stochastic
        rounding.
        """
        return bytes([0, _pack_rounding(self.rounding)])

    @classmethod
    def unpack(cls, parameters: Sequence[int]) -> Self:
        """Return the codec of two such bytes. Raises ValueError for invalid parameters."""
        first, second = parameters
        if first or second & ~_STOCHASTIC:
            raise ValueError(f"parameters must be 0 and 0 or {_STOCHASTIC}, not {first} and {second}")
        return cls(rounding=_unpack_rounding(second))

    def stream_limits(self, count: int) -> tuple[int, int]:
        """Return the least and most bytes of the stream of ``count`` values; they are equal."""
        size = count * self.code_bits // 8
        return size, size

    def check_frame(self, *, lanes: int, frame_values: int) -> None:
        """Accept every frame: values are coded separately."""

    def max_word_bytes(self, lanes: int) -> int:
        """Return the most bytes of a word on the link: at most those of the values themselves."""
        return lanes * FLOAT_BITS // 8

    @property
    def code_bits(self) -> int:
        """Bits of a value on the link."""
        return self.layout.bits

    @property
    def ratio(self) -> float:
        """Compression ratio, the same for all data."""
        return FLOAT_BITS / self.code_bits


@dataclass(frozen=True)
class Bf16(Half):
    """Parameters of bfloat16: the upper half of a binary32 value, rounded."""

    kind: ClassVar[Codec] = Codec.BF16
    layout: ClassVar[Minifloat] = BFLOAT16


@dataclass(frozen=True)
class Fp16(Half):
    """Parameters of IEEE 754's binary16."""

    kind: ClassVar[Codec] = Codec.FP16
    layout: ClassVar[Minifloat] = BINARY16


def _check_rounding(rounding: Rounding) -> None:
    if not isinstance(rounding, Rounding):
        names = " or ".join(each.name.lower() for each in Rounding)
        raise ValueError(f"rounding must be {names}, not {rounding!r}")


def _rounding_suffix(rounding: Rounding) -> str:
    return f", {rounding.name.lower()}" if rounding is Rounding.STOCHASTIC else ""


def _pack_rounding(rounding: Rounding) -> int:
    return _STOCHASTIC if rounding is Rounding.STOCHASTIC else 0


def _unpack_rounding(second: int) -> Rounding:
    return Rounding.STOCHASTIC if second & _STOCHASTIC else Rounding.NEAREST


#: A codec with its parameters.
CodecConfig = Inceptionn | Bfp | Mx | Bf16 | Fp16

#: Each codec's class, by its kind.
CONFIGS: dict[Codec, type[CodecConfig]] = {config.kind: config for config in (Inceptionn, Bfp, Mx, Bf16, Fp16)}

#: Codecs that have a parameter, by the parameter's name.
OWNERS: dict[str, tuple[Codec, ...]] = {
    name: tuple(kind for kind, config in CONFIGS.items() if name in {field.name for field in fields(config)})
    for name in dict.fromkeys(field.name for config in CONFIGS.values() for field in fields(config))
}

#: Parameters that are members of an enumeration, which options call by their names in lower case.
ENUMERATIONS: dict[str, type[Mode | Element | Rounding]] = {
    "mode": Mode,
    "element": Element,
    "rounding": Rounding,
}


def member_names(parameter: str) -> tuple[str, ...]:
    """Return the names in lower case of the values that a parameter of ``ENUMERATIONS`` can have."""
    return tuple(member.name.lower() for member in ENUMERATIONS[parameter])


def parse_member(parameter: str, name: str) -> Mode | Element | Rounding:
    """Return the value of a parameter of ``ENUMERATIONS`` by its name.

    Raises ValueError that lists the names.
    """
    names = member_names(parameter)
    if name not in names:
        raise ValueError(f"{parameter} must be one of {', '.join(names)}, not {name!r}")
    return ENUMERATIONS[parameter][name.upper()]


def is_stochastic(config: CodecConfig | Half) -> bool:
    """Return whether the codec rounds stochastically, so that its encoder takes a seed."""
    return getattr(config, "rounding", Rounding.NEAREST) is Rounding.STOCHASTIC
