"""Operands on which binary32 arithmetic goes wrong, as bits."""

# Positive; each comes with either sign.
_MAGNITUDES = (
    0x00000000,  # zero
    0x00000001,  # the least and the greatest subnormal
    0x007FFFFF,
    0x00800000,  # the least normal, its neighbour, twice it less one
    0x00800001,
    0x00FFFFFF,
    0x01000000,
    0x33800000,  # 2^-24: half of the last place of 1
    0x33800001,
    0x34000000,  # 2^-23: the last place of 1
    0x3F000000,  # 1/2
    0x3F7FFFFF,  # the neighbours of 1
    0x3F800000,
    0x3F800001,
    0x4B7FFFFF,  # 2^24 - 1 and its neighbours
    0x4B800000,
    0x4B800001,
    0x7E800000,  # 2^126
    0x7F7FFFFF,  # the greatest
    0x7F000000,  # 2^127
    0x73000000,  # half of the last place of the greatest
    0x7F800000,  # infinity
    0x7F800001,  # NaN, signalling and quiet
    0x7FC12345,
)
SPECIAL = [magnitude | sign << 31 for sign in (0, 1) for magnitude in _MAGNITUDES]


def close_pairs(rng, count):
    """Random pairs; most of exponents so close that operands cancel, tie, or leave a sticky bit."""
    pairs = []
    for _ in range(count):
        exponent = rng.randrange(256)
        other = min(
            max(exponent + rng.choice([0, 0, 1, -1, rng.randint(-30, 30), rng.randint(-255, 255)]), 0), 255
        )
        a, b = (rng.getrandbits(1) << 31 | e << 23 | _fraction(rng) for e in (exponent, other))
        if rng.random() < 0.1:
            b = (a ^ 1 << 31) + rng.randint(-2, 2) & 0xFFFFFFFF
        pairs.append((a, b))
    return pairs


def _fraction(rng):
    """Any, few ones on top, or few zeros: what comes close to a tie."""
    fraction = rng.getrandbits(23)
    kept = rng.randrange(24)
    return rng.choice([fraction, fraction >> kept << kept, fraction | (1 << kept) - 1])
