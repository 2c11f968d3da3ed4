"""What is on a line: carriers as a PHY gives them, and a reading of them that shares nothing with the RTL."""

import random
import zlib
from typing import NamedTuple

from fanin.hdl.net.ethernet.gmii import Cause


class Symbol(NamedTuple):
    """What GMII has in a step."""

    data: int
    valid: bool
    error: bool

    @property
    def fields(self):
        return self._asdict()


def with_fcs(frame):
    return frame + zlib.crc32(frame).to_bytes(4, "little")


def carrier(content, *, preamble=7, errors=(), start=b"\xd5"):
    """The symbols of a carrier; ``errors`` are the places of damage in it."""
    line = b"\x55" * preamble + start + content
    return [Symbol(byte, True, n in errors) for n, byte in enumerate(line)]


def gap(steps, rng):
    """Symbols without a carrier: the rest of them means nothing."""
    return [Symbol(rng.choice([0, 0xD5, rng.randrange(256)]), False, rng.random() < 0.1) for _ in range(steps)]


def read(symbols, *, max_frame=2000):
    """``(content without FCS, cause)`` of every carrier; None for what has less than five bytes."""
    found, line, damaged = [], b"", False
    for symbol in symbols:
        if symbol.valid:
            line += bytes([symbol.data])
            damaged |= symbol.error
        elif line:
            content = line.partition(b"\xd5")[2]
            found.append((content[:-4] or None, _cause(content, damaged, max_frame)))
            line, damaged = b"", False
    return found


def _cause(content, damaged, max_frame):
    if damaged:
        return Cause.ERROR
    if len(content) < 64:
        return Cause.RUNT
    if len(content) > max_frame:
        return Cause.LONG
    return Cause.GOOD if content == with_fcs(content[:-4]) else Cause.BAD_FCS


def odd_carrier(rng, *, max_frame=2000):
    """One of the carriers that there should not be, or a good one."""
    size = rng.choice([rng.randrange(64), *range(64, 70), 100, max_frame + rng.choice([0, 1, 40])])
    content = rng.randbytes(size)
    content = with_fcs(content[:-4]) if size >= 4 else content
    kind = rng.choice(["good", "good", "good", "bit", "error", "no start", "cut"])
    preamble = rng.choice([0, 1, 3, 5, 6, 7, 8, 15])
    if kind == "bit" and content:
        at = rng.randrange(8 * size)
        content = bytes(byte ^ (1 << at % 8 if n == at // 8 else 0) for n, byte in enumerate(content))
    if kind == "cut":
        content = content[: rng.randrange(size + 1)]
    if kind == "no start":
        line = bytes(byte for byte in content[: rng.randrange(1, 200)] if byte != 0xD5) or b"\x55"
        return carrier(line, preamble=preamble, start=b"")
    symbols = carrier(content, preamble=preamble)
    if kind == "error":
        at = rng.randrange(len(symbols))
        symbols[at] = symbols[at]._replace(error=True)
    return symbols


def each_cause(rng, *, max_frame):
    """A good carrier, and one for each of the causes why there is no frame."""
    size = rng.randrange(60, max_frame - 3)
    bad = carrier(with_fcs(rng.randbytes(size)))
    at = rng.randrange(10, len(bad))
    bad[at] = bad[at]._replace(error=True)
    return [
        carrier(with_fcs(rng.randbytes(size))),
        bad,
        carrier(rng.randbytes(size + 4)),  # as good as never with a right FCS
        carrier(with_fcs(rng.randbytes(rng.randrange(1, 60)))),
        carrier(with_fcs(rng.randbytes(max_frame + rng.randrange(-3, 40)))),
    ]


def enables(rng: random.Random):
    """In which cycles a step is: phases of each one, each second one, and by chance."""
    while True:
        kind = rng.randrange(3)
        for n in range(rng.randrange(20, 300)):
            yield (True, n % 2 == 0, rng.random() < 0.4)[kind]
