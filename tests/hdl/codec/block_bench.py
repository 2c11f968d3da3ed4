"""Codecs of blocks in Amaranth's simulator: frames through a compressor, streams through a decompressor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np

from fanin.codec.facts import FLOAT_BITS, Bfp, CodecConfig, Half, Mx, is_stochastic
from fanin.codec.formats import SCALE_BITS
from fanin.codec.golden import codecs
from fanin.codec.golden.rounding import advance
from fanin.hdl.codec.make import make_compressor, make_decompressor
from tests.hdl.stream.frames import beats
from tests.support import simulate

SPECIAL = [0x7F800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0x7FC00000, 0xFF7FFFFF, 0x807FFFFF, 0xFFC00001]
SPECIAL += [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0xBF7FFFFF, 0x33800000, 0xFF800000]
RUN = 16  # values of a kind in a row: the shortest block of MX


def gradients(rng: Random, count: int, specials: float = 0.04) -> bytes:
    """Values a few powers of two apart, so that they round and tie, with special ones among them."""
    base, spread = rng.choice([rng.randrange(1, 255), rng.randrange(100, 135)]), rng.choice([1, 6, 20])
    values = []
    for _ in range(count):
        exponent = min(254, max(0, base + rng.randrange(-spread, spread)))
        fraction = rng.getrandbits(23) & rng.choice([0x7FFFFF, 0x7F0000, 0x7F8000, 0, 0x7F0001])
        values.append(rng.getrandbits(1) << 31 | exponent << 23 | fraction)
        if rng.random() < specials:
            values[-1] = rng.choice(SPECIAL)
    return np.array(values, dtype="<u4").tobytes()


def runs(rng: Random, count: int) -> bytes:
    """Runs of values of a kind each, so that some blocks have no special value, and some have only these."""
    result = b""
    while len(result) < 4 * count:
        kind = rng.randrange(8)
        values = np.frombuffer(gradients(rng, RUN, specials=0), dtype="<u4").copy()
        if kind == 0:
            values &= 0x80000000  # zeros
        elif kind == 1:
            values &= 0x807FFFFF  # subnormal
        elif kind == 2:
            values[rng.randrange(RUN)] = 0x7F800000 | rng.getrandbits(1) << 31
        elif kind == 3:
            values[rng.randrange(RUN)] = 0x7F800001 | rng.getrandbits(32)
        elif kind == 4:
            values |= 0x7F000000  # large, infinities and NaN
        elif kind == 5:
            values &= 0x87FFFFFF  # near the least exponent
        result += values.astype("<u4").tobytes()
    return result[: 4 * count]


def random_frames(rng: Random, count: int, make: Any = gradients) -> list[bytes]:
    """A frame of special values, then ragged ones, some of a single byte or of whole words."""
    sizes = [rng.choice([1, 3, 4, 32, 64, 128, 256, 257, rng.randrange(1, 700)]) for _ in range(count)]
    special = np.array(SPECIAL, dtype="<u4").tobytes()
    return [special, *(make(rng, size // 4 + 1)[:size] for size in sizes[1:])]


def _values(frame: bytes) -> Any:
    return np.frombuffer(frame + bytes(-len(frame) % 4), dtype="<f4")


def encoded(frame: bytes, config: CodecConfig, seed: int = 1) -> bytes:
    """The golden model's stream of a frame."""
    return codecs.encode(_values(frame), config, seed)


def encoded_in_sequence(sent: Sequence[bytes], config: CodecConfig, width: int, seed: int) -> list[bytes]:
    """The golden model's streams of frames that one sequence of random bits serves, whole words of it each."""
    words = accumulate([-(-len(frame) * 8 // width) for frame in sent], initial=0)
    seeds = [advance(seed, number * width // FLOAT_BITS) for number in words]
    return [encoded(frame, config, own) for frame, own in zip(sent, seeds, strict=False)]


def decoded(frame: bytes, config: CodecConfig) -> bytes:
    """The values that the golden model returns of a frame."""
    return codecs.roundtrip(_values(frame), config).astype("<f4").tobytes()[: len(frame)]


def bytes_needed(length: int, config: Bfp | Mx | Half, width: int) -> int:
    """Bytes of a stream that a frame needs: of a block of several words, only those of which it has bytes."""
    if isinstance(config, Half):
        return -(-length // 4) * config.code_bits // 8
    scale = config.exponent if isinstance(config, Bfp) else SCALE_BITS
    if 32 * config.block <= width:
        return -(-(-(-length // (4 * config.block)) * config.block_bits) // 8)
    blocks, words = divmod(-(-length * 8 // width), 32 * config.block // width)
    bits = blocks * config.block_bits + bool(words) * scale + words * width // 32 * config.code_bits
    return -(-bits // 8)


def compress(
    config: CodecConfig,
    width: int,
    sent: Sequence[bytes],
    *,
    stall: float = 0.0,
    seed: int | None = None,
    rounding_seed: int = 1,
) -> dict[str, list[tuple[int, Any]]]:
    """Send frames through a compressor. ``rounding_seed``: that of its random bits, for stochastic rounding."""
    dut = make_compressor(config, width)
    words = sum(-(-len(encoded(frame, config)) * 8 // width) for frame in sent)
    drive = {"i": list(beats(sent, width, errors=None))}

    async def give_seed(ctx: Any) -> None:
        """The seed is at the port only until the first word is taken."""
        ctx.set(dut.seed, rounding_seed)
        await ctx.tick().until(dut.i.valid & dut.i.ready)
        ctx.set(dut.seed, 0)

    processes = [give_seed] if is_stochastic(config) else []
    return simulate(dut, drive=drive, collect={"o": words}, stall=stall, seed=seed, processes=processes)


def decompress(
    config: CodecConfig,
    width: int,
    streams: Sequence[bytes],
    lengths: Sequence[int],
    *,
    stall: float = 0.0,
    seed: int | None = None,
) -> dict[str, list[tuple[int, Any]]]:
    """Send streams through a decompressor, with the lengths of their frames."""
    words = sum(-(-length * 8 // width) for length in lengths)
    drive = {"i": list(beats(streams, width, errors=None)), "length": lengths}
    return simulate(make_decompressor(config, width), drive=drive, collect={"o": words}, stall=stall, seed=seed)


def unused(component: Any) -> Any:
    """A component that is looked at and never elaborated, of which Amaranth shall not warn."""
    component._MustUse__used = True
    return component


def latencies(config: CodecConfig, width: int) -> tuple[int, int]:
    """The latency of the compressor and of the decompressor."""
    parts = make_compressor(config, width), make_decompressor(config, width)
    return unused(parts[0]).latency, unused(parts[1]).latency


def errors_of(log: dict[str, list[tuple[int, Any]]]) -> list[bool]:
    """The error flag of each frame that a decompressor returned."""
    return [bool(payload.error) for _, payload in log["o"] if payload.last]


def around_the_length(
    rng: Random, config: Any, width: int, make: Any = gradients
) -> tuple[list[bytes], list[bytes], list[bool]]:
    """Frames, their streams of each length around what the values need, and whether they are too short."""
    sent, streams, errors = [], [], []
    for change in (-200, -65, -33, -1, 0, None, 1, None, 33, None, 64, None, 200, 0):
        frame = random_frames(rng, 2, make)[1]
        needed = bytes_needed(len(frame), config, width)
        part = needed % (width // 8)  # of the last word, which None leaves out
        size = max(1, needed - part if change is None else needed + change)
        sent.append(frame)
        streams.append((encoded(frame, config) + rng.randbytes(200))[:size])
        errors.append(size < needed)
    return sent, streams, errors
