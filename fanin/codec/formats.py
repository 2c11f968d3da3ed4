"""Narrow number formats of codecs, and the random bits of stochastic rounding, declared once for RTL, NumPy and
docs (docs/systems/codec.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum

SCALE_BITS = 8  # of MX's E8M0 scale
SCALE_BIAS = 127
SCALE_NAN = 255  # the scale of a block of NaN

RANDOM_BITS = 8  # for each value
#: Stochastic rounding takes its bits from a linear-feedback shift register: s[n + 32] is the XOR of
#: s[n + tap] for these taps. The polynomial x^32 + x^22 + x^2 + x + 1 is primitive, so the period is 2^32 - 1.
LFSR_BITS = 32
LFSR_TAPS = (0, 1, 2, 22)
MAX_ROUNDING_SEED = (1 << LFSR_BITS) - 1  # seeds are 1 to this
LFSR_WARM_UP = 1024  # bits that are skipped after a seed, so that small seeds give random bits, too


class Rounding(IntEnum):
    """Rounding of a value to a narrow format."""

    NEAREST = 0  # ties to even
    STOCHASTIC = 1  # up with a probability that is the cut-off part of a step


class Specials(Enum):
    """Codes of a format that are no numbers."""

    NONE = "none"  # every code is a number
    NAN = "NaN"  # the codes of all ones, with either sign, are NaN
    IEEE = "IEEE 754"  # the largest exponent encodes infinities and NaN


@dataclass(frozen=True)
class Minifloat:
    """Floating-point format: from the highest bit a sign, ``exponent`` bits, ``fraction`` bits.

    - ``exponent``: bits of the exponent field. Without any, all codes are subnormal, which is fixed point.
    - ``fraction``: bits of the fraction field.
    - ``bias``: difference between exponent field and exponent, for a field of at least 1.
    - ``specials``: codes that are no numbers.

    A *magnitude* below is a code without its sign.
    """

    exponent: int
    fraction: int
    bias: int
    specials: Specials = Specials.NONE

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return 1 + self.exponent + self.fraction

    @property
    def min_exponent(self) -> int:
        """Exponent of the least normal number. Subnormal numbers are multiples of
        2^(``min_exponent`` - ``fraction``).
        """
        return 1 - self.bias

    @property
    def max_exponent(self) -> int:
        """Exponent of the largest power of two: the specification's emax."""
        field = self.largest >> self.fraction
        if field:
            return field - self.bias
        return self.largest.bit_length() - 1 - self.fraction + self.min_exponent

    @property
    def largest(self) -> int:
        """Magnitude of the largest finite number."""
        if self.infinity is not None:
            return self.infinity - 1
        return (1 << self.bits - 1) - (2 if self.specials is Specials.NAN else 1)

    @property
    def infinity(self) -> int | None:
        """Magnitude of infinity, if the format has one; larger magnitudes are NaN."""
        return (1 << self.exponent) - 1 << self.fraction if self.specials is Specials.IEEE else None

    @property
    def nan(self) -> int | None:
        """Magnitude of the quiet NaN, if the format has one."""
        if self.infinity is not None:
            return self.infinity | 1 << self.fraction - 1
        return (1 << self.bits - 1) - 1 if self.specials is Specials.NAN else None


BFLOAT16 = Minifloat(8, 7, 127, Specials.IEEE)
BINARY16 = Minifloat(5, 10, 15, Specials.IEEE)


class Element(StrEnum):
    """Element format of MX."""

    E4M3 = "e4m3"
    E5M2 = "e5m2"
    E3M2 = "e3m2"
    E2M3 = "e2m3"
    E2M1 = "e2m1"
    INT8 = "int8"  # multiples of 2^-6 in two's complement

    @property
    def id(self) -> int:
        """Number of the format in headers."""
        return list(Element).index(self)

    @property
    def layout(self) -> Minifloat:
        """Layout of a code. That of ``INT8`` is the layout of its magnitude."""
        return _LAYOUTS[self]


_LAYOUTS = {
    Element.E4M3: Minifloat(4, 3, 7, Specials.NAN),
    Element.E5M2: Minifloat(5, 2, 15, Specials.IEEE),
    Element.E3M2: Minifloat(3, 2, 3),
    Element.E2M3: Minifloat(2, 3, 1),
    Element.E2M1: Minifloat(2, 1, 1),
    Element.INT8: Minifloat(0, 7, 0),
}
