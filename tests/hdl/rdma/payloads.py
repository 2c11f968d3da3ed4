"""What the tests of fetch and store share: where payloads lie."""

from fanin.hdl.bus.axi4 import BOUNDARY
from fanin.rdma.facts import MAX_PAYLOAD

SIZES = [1, 2, 15, 16, 17, 63, 64, 65, 100, 1000, 4095, MAX_PAYLOAD]


def words_of(lane, size, step):
    """Words that ``size`` bytes from ``lane`` on reach over."""
    return -(-(lane + size) // step)


def bursts_of(address, size, step):
    """``(address, words)`` of each burst that a payload takes."""
    end = address + size
    border = (address // BOUNDARY + 1) * BOUNDARY
    parts = [(address, end)] if end <= border else [(address, border), (border, end)]
    return [(a // step * step, words_of(a % step, b - a, step)) for a, b in parts]


def places(rng, count, step, *, space):
    """``(address, size, lane)``, many of them about a 4 KiB boundary."""
    for _ in range(count):
        size = rng.choice([rng.choice(SIZES), rng.randrange(1, 300)])
        border = rng.randrange(1, space // BOUNDARY - 1) * BOUNDARY
        address = border + rng.choice([0, 1, -1, -size, 1 - size, -size // 2, rng.randrange(-600, 600)])
        yield address, size, rng.randrange(step)


def windows(payloads, step):
    """How the words of each ``(address, size, lane)`` are merged: the fields of ``window_layout``."""
    for address, size, lane in payloads:
        at = address % step
        words, prime = words_of(at, size, step), at > lane
        flush = words_of(lane, size, step) > words - prime
        yield {"words": words, "single": words == 1, "lane": (lane - at) % step, "prime": prime, "flush": flush,
               "drop": False}  # fmt: skip


def turned_words(content, payloads, step):
    """The words of memory of each ``(address, size, lane)``, turned so that its first byte is at ``lane``."""
    result = []
    for address, size, lane in payloads:
        start, turn = address // step * step, (lane - address) % step
        for n in range(words_of(address % step, size, step)):
            word = content[start + n * step :][:step]
            result.append(int.from_bytes(word[step - turn :] + word[: step - turn], "little"))
    return result
