"""Second implementation of the codecs, value by value from their description, to check the NumPy models.

This implementation is slow and plain, and shares only the parameters with NumPy and RTL. INCEPTIONN is the text
of algorithms 2 and 3 on strings of bits; BFP uses exact fractions. ``scalar_minifloat`` has the other codecs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction

from fanin.codec.facts import Bfp, CodecConfig, Half, Inceptionn, Mode, Mx
from fanin.codec.golden.scalar_minifloat import half_encode, half_roundtrip, mx_encode, mx_roundtrip

_NAN, _INFINITY = "nan", "infinity"


def inceptionn_compress(bits: int, config: Inceptionn) -> tuple[int, int]:
    """Return tag and word of one value; values are given and returned as bits."""
    text = f"{bits:032b}"
    sign, exponent, mantissa = text[0], int(text[1:9], 2), text[9:]
    if exponent >= 127:
        return 0b11, bits
    shifted = ("0" * (127 - exponent) + "1" + mantissa)[1:24]  # shifted_m[22:0]
    forms = [(0b00, 0), (0b01, int(sign + shifted[:7], 2)), (0b10, int(sign + shifted[:15], 2))]
    if config.mode is Mode.PUBLISHED:
        error_bound = 127 - config.bound
        if exponent < error_bound:
            return forms[0]
        return forms[2 if exponent >= error_bound - (error_bound - 127) // 2 else 1]
    exact, bound = _float(bits), 2.0**-config.bound  # differences of such values are exact in binary64
    return next(
        (form for form in forms[:2] if abs(exact - _float(inceptionn_decompress(*form))) <= bound), forms[2]
    )


def inceptionn_decompress(tag: int, word: int) -> int:
    """Return the bits of a value from its tag and word."""
    if tag == 0b11:
        return word
    width = {0b00: 0, 0b01: 8, 0b10: 16}[tag]
    text = f"{word:0{width}b}" if width else "0"
    if "1" not in text[1:]:
        return 0
    shift = text.index("1", 1)  # position of the leading one in the fraction, from 1
    mantissa = text[shift + 1 :].ljust(23, "0")
    return int(f"{text[0]}{127 - shift:08b}{mantissa}", 2)


def _float(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


def bfp_compress(block: Sequence[int], config: Bfp) -> tuple[int, list[int]]:
    """Return exponent code and value codes of one block of values, given as bits."""
    largest = max(bits >> 23 & 0xFF for bits in block)
    special = 2**config.exponent - 1
    shared = special if largest == 255 else sorted((0, largest - 127 + _bfp_bias(config), special - 1))[1]
    return shared, [_bfp_code(bits, shared, config) for bits in block]


def _bfp_bias(config: Bfp) -> int:
    return int(2 ** (config.exponent - 1) - 1 + config.offset)


def _bfp_scale(shared: int, config: Bfp) -> Fraction:
    """Return the value of magnitude 1.0 in a block with this exponent code."""
    is_special = shared == 2**config.exponent - 1
    return Fraction(2) ** (128 if is_special else shared - _bfp_bias(config))


def _bfp_code(bits: int, shared: int, config: Bfp) -> int:
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    infinity, largest = 2 ** (config.mantissa - 1), 2**config.mantissa - 1
    if exponent == 255:
        magnitude = largest if fraction else infinity
    elif exponent == 0:
        magnitude = 0
    else:
        exact = Fraction(0x800000 | fraction, 0x800000) * Fraction(2) ** (exponent - 127)
        limit = infinity - 1 if shared == 2**config.exponent - 1 else largest
        magnitude = min(round(exact / _bfp_scale(shared, config) * infinity), limit)
    return magnitude and magnitude | bits >> 31 << config.mantissa


def bfp_decompress(shared: int, code: int, config: Bfp) -> int:
    """Return the bits of one value from its block's exponent code and its own code."""
    infinity = 2 ** (config.mantissa - 1)
    magnitude, sign = code % (2 * infinity), code >> config.mantissa
    if shared == 2**config.exponent - 1 and magnitude >= infinity:
        return 0x7FC00000 if magnitude > infinity else sign << 31 | 0x7F800000
    value = Fraction(magnitude, infinity) * _bfp_scale(shared, config)
    if value < Fraction(2) ** -126:
        return 0
    (bits,) = struct.unpack("<I", struct.pack("<f", float(value)))
    return sign << 31 | bits


def inceptionn_encode(values: Sequence[int], config: Inceptionn) -> bytes:
    """Return the byte stream of values given as bits."""
    stream = bytearray()
    for first in range(0, len(values), config.group):
        forms = [inceptionn_compress(bits, config) for bits in values[first : first + config.group]]
        tags = sum(tag << 2 * index for index, (tag, _) in enumerate(forms))
        stream += tags.to_bytes(config.group // 4, "little")
        for tag, word in forms:
            stream += word.to_bytes((0, 1, 2, 4)[tag], "little")
    return bytes(stream)


def bfp_encode(values: Sequence[int], config: Bfp) -> bytes:
    """Return the bit stream of values given as bits."""
    text = []  # lowest bit first
    for first in range(0, len(values), config.block):
        block = [*values[first : first + config.block]]
        shared, codes = bfp_compress(block + [0] * (config.block - len(block)), config)
        text.append(f"{shared:0{config.exponent}b}"[::-1])
        text += [f"{code:0{config.mantissa + 1}b}"[::-1] for code in codes]
    bits = "".join(text)
    return bytes(int(bits[start : start + 8][::-1], 2) for start in range(0, len(bits), 8))


def inceptionn_roundtrip(values: Sequence[int], config: Inceptionn) -> list[int]:
    """Return values as the receiver decodes them; values are given and returned as bits."""
    return [inceptionn_decompress(*inceptionn_compress(bits, config)) for bits in values]


def bfp_roundtrip(values: Sequence[int], config: Bfp) -> list[int]:
    """Return values as the receiver decodes them, as bits; the last block may be short."""
    decoded = []
    for first in range(0, len(values), config.block):
        shared, codes = bfp_compress(values[first : first + config.block], config)
        decoded += [bfp_decompress(shared, code, config) for code in codes]
    return decoded


def encode(values: Sequence[int], config: CodecConfig, seed: int = 1) -> bytes:
    """Return the stream of values of any codec; ``seed`` starts the random bits of stochastic rounding."""
    match config:
        case Inceptionn():
            return inceptionn_encode(values, config)
        case Bfp():
            return bfp_encode(values, config)
        case Mx():
            return mx_encode(values, config, seed)
        case Half():
            return half_encode(values, config, seed)
    raise ValueError(f"codec {config.kind} has no scalar reading")


def roundtrip(values: Sequence[int], config: CodecConfig, seed: int = 1) -> list[int]:
    """Return values as the receiver decodes them, for any codec; ``seed`` as for ``encode``."""
    match config:
        case Inceptionn():
            return inceptionn_roundtrip(values, config)
        case Bfp():
            return bfp_roundtrip(values, config)
        case Mx():
            return mx_roundtrip(values, config, seed)
        case Half():
            return half_roundtrip(values, config, seed)
    raise ValueError(f"codec {config.kind} has no scalar reading")
