"""Second implementation of MX, bfloat16 and binary16, value by value with exact fractions.

The implementation searches a format's list of numbers for the two around a value. It shares only the parameters
of formats with NumPy and RTL.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import repeat

from fanin.codec.facts import Half, Mx, Rounding
from fanin.codec.formats import Element, Minifloat, Specials

_NAN, _INFINITY, _SIGN = 0x7FC00000, 0x7F800000, 1 << 31
_MIN_NORMAL = Fraction(1, 2**126)
_BEYOND_BINARY32 = Fraction(2) ** 128


@cache
def _finite_numbers(layout: Minifloat) -> list[Fraction]:
    """Return the finite numbers of a format from 0 on; the place of each is its code."""
    found = []
    for code in range(1 << layout.exponent + layout.fraction):
        text = f"{code:0{layout.exponent + layout.fraction}b}"
        exponent, fraction = text[: layout.exponent], text[layout.exponent :]
        if layout.specials is Specials.IEEE and "0" not in exponent:
            break
        if layout.specials is Specials.NAN and "0" not in text:
            break
        significand = int(("1" if "1" in exponent else "0") + fraction, 2)
        power = max(int(exponent or "0", 2), 1) - layout.bias - layout.fraction
        found.append(significand * Fraction(2) ** power)
    return found


def _round(exact: Fraction, layout: Minifloat, random: int | None) -> int:
    """Return the code of the rounded value; the number of finite codes if it is above them."""
    known = _finite_numbers(layout)
    lower = bisect_right(known, exact) - 1
    step = known[-1] - known[-2] if lower == len(known) - 1 else known[lower + 1] - known[lower]
    part = (exact - known[lower]) / step
    if part >= 1:  # above the last one by a step and more
        return len(known)
    if random is None:
        return lower + round(part + lower % 2) - lower % 2  # round() of a Fraction: ties to even
    ninth = int(512 * part)
    return lower + (ninth // 2 + ninth % 2 + random) // 256


def _magnitude(bits: int) -> Fraction:
    """Return the magnitude of a finite binary32 value."""
    (value,) = struct.unpack("<f", struct.pack("<I", bits % _SIGN))
    return Fraction(value)


def _is_finite(bits: int) -> bool:
    return bits % _SIGN < _INFINITY


def _is_nan(bits: int) -> bool:
    return bits % _SIGN > _INFINITY


def _random_bytes(seed: int) -> Iterator[int]:
    """Yield the random byte of each value from a shift register that is moved bit by bit."""
    register = [seed >> k & 1 for k in range(32)]

    def move() -> int:
        register.append(register[0] ^ register[1] ^ register[2] ^ register[22])
        return register.pop(0)

    for _ in range(1024):
        move()
    while True:
        yield sum(move() << k for k in range(8))


def _randoms(rounding: Rounding, seed: int) -> Iterator[int | None]:
    return _random_bytes(seed) if rounding is Rounding.STOCHASTIC else repeat(None)


def mx_compress(block: Sequence[int], config: Mx, randoms: Iterator[int | None]) -> tuple[int, list[int]]:
    """Return scale and codes of one block of values, given as bits; takes a random byte for each value."""
    largest = config.element.layout.max_exponent
    taken = [next(randoms) for _ in block]
    if any(map(_is_nan, block)):
        return 255, [0] * len(block)
    if not all(map(_is_finite, block)):
        power = 128
    else:
        amax = max(map(_magnitude, block))
        power = -127 if amax < _MIN_NORMAL else _floor_log2(amax)
    if power - largest > 127:  # E8M0 has no larger scale
        return 255, [0] * len(block)
    scale = max(power - largest, -127)
    codes = [_mx_code(bits, scale, config.element, random) for bits, random in zip(block, taken, strict=True)]
    return scale + 127, codes


def _floor_log2(value: Fraction) -> int:
    power = 127
    while Fraction(2) ** power > value:
        power -= 1
    return power


def _mx_code(bits: int, scale: int, element: Element, random: int | None) -> int:
    layout = element.layout
    finite = _finite_numbers(layout)
    code = len(finite) - 1
    if _is_finite(bits):
        value = _magnitude(bits) if _magnitude(bits) >= _MIN_NORMAL else Fraction(0)
        code = min(code, _round(value / Fraction(2) ** scale, layout, random))
    if element is Element.INT8:
        return (-code if bits >= _SIGN else code) % 256
    return code + (1 << layout.bits - 1 if bits >= _SIGN else 0)


def mx_decompress(scale: int, code: int, config: Mx) -> int:
    """Return the bits of one value from its block's scale and its own code."""
    layout = config.element.layout
    sign, code = divmod(code, 1 << layout.bits - 1)
    if scale == 255:
        return _NAN
    if config.element is Element.INT8:
        number = Fraction(abs(code - 128 * sign), 64)
    elif code < len(_finite_numbers(layout)):
        number = _finite_numbers(layout)[code]
    else:
        return _special(layout, sign, code)
    return sign << 31 | _pack(number * Fraction(2) ** (scale - 127))


def _special(layout: Minifloat, sign: int, code: int) -> int:
    is_infinity = layout.specials is Specials.IEEE and code == len(_finite_numbers(layout))
    return sign << 31 | _INFINITY if is_infinity else _NAN


def _pack(magnitude: Fraction) -> int:
    """Return the bits of a magnitude of at most 24 bits; 0 for a subnormal one."""
    if magnitude < _MIN_NORMAL:
        return 0
    if magnitude >= _BEYOND_BINARY32:
        return _INFINITY
    return int.from_bytes(struct.pack("<f", float(magnitude)), "little")


def mx_encode(values: Sequence[int], config: Mx, seed: int = 1) -> bytes:
    """Return the stream of values given as bits."""
    stream, randoms = bytearray(), _randoms(config.rounding, seed)
    for first in range(0, len(values), config.block):
        block = [*values[first : first + config.block]]
        scale, codes = mx_compress(block + [0] * (config.block - len(block)), config, randoms)
        number = sum(code << n * config.element.layout.bits for n, code in enumerate(codes))
        stream += bytes([scale]) + number.to_bytes(config.block * config.element.layout.bits // 8, "little")
    return bytes(stream)


def mx_roundtrip(values: Sequence[int], config: Mx, seed: int = 1) -> list[int]:
    """Return values as the receiver decodes them, as bits; the last block may be short."""
    decoded, randoms = [], _randoms(config.rounding, seed)
    for first in range(0, len(values), config.block):
        scale, codes = mx_compress(values[first : first + config.block], config, randoms)
        decoded += [mx_decompress(scale, code, config) for code in codes]
    return decoded


def half_compress(bits: int, config: Half, random: int | None) -> int:
    """Return the code of one value, given as bits."""
    layout = config.layout
    infinity, sign = len(_finite_numbers(layout)), 1 << 15 if bits >= _SIGN else 0
    if _is_nan(bits):
        return infinity + 2 ** (layout.fraction - 1)
    if not _is_finite(bits):
        return sign + infinity
    return sign + _round(_magnitude(bits), layout, random)


def half_decompress(code: int, config: Half) -> int:
    """Return the bits of one value from its code."""
    sign, code = divmod(code, 1 << 15)
    numbers = _finite_numbers(config.layout)
    if code >= len(numbers):
        return _special(config.layout, sign, code)
    return sign << 31 | int.from_bytes(struct.pack("<f", float(numbers[code])), "little")


def half_encode(values: Sequence[int], config: Half, seed: int = 1) -> bytes:
    """Return the stream of values given as bits."""
    pairs = zip(values, _randoms(config.rounding, seed), strict=False)
    return b"".join(half_compress(bits, config, random).to_bytes(2, "little") for bits, random in pairs)


def half_roundtrip(values: Sequence[int], config: Half, seed: int = 1) -> list[int]:
    """Return values as the receiver decodes them, as bits."""
    pairs = zip(values, _randoms(config.rounding, seed), strict=False)
    return [half_decompress(half_compress(bits, config, random), config) for bits, random in pairs]
