"""Comparison of the codecs' RTL in Verilator with NumPy, in both directions, on frames of many sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.codec.facts import FLOAT_BITS, CodecConfig, Inceptionn, is_stochastic
from fanin.codec.golden import packet
from fanin.codec.golden.codecs import decode, encode
from fanin.codec.golden.rounding import advance
from fanin.hdl.codec.make import make_compressor, make_decompressor
from fanin.sim.cosim.stream_file import StreamFile, StreamRun

Float32 = npt.NDArray[np.float32]
UInt32 = npt.NDArray[np.uint32]

MAX_FRAME_VALUES = 1024
_VALUE_BYTES = FLOAT_BITS // 8
_ROUNDING_SEED = 0x5EED  # of a run, with stochastic rounding
_CUT_SHARE = 0.25  # share of the frames whose last value lacks bytes


@dataclass(frozen=True)
class Outcome:
    """Result of the comparison in one direction."""

    direction: str
    values: int
    groups: int  #: words of the uncompressed side
    mismatches: int  #: values that differ, plus frames whose stream differs although no value does
    first: str  #: description of the first mismatch, or empty
    run: StreamRun

    @property
    def cycles_per_group(self) -> float:
        """Cycles per word of the whole run, with the gaps between frames."""
        return self.run.cycles / self.groups


class CodecRtl:
    """Verilated compressor and decompressor. INCEPTIONN's bound and mode may change from check to check."""

    def __init__(self, config: CodecConfig, *, width: int = 512, quiet: bool = False):
        """Build both; ``width``: bits of a word; INCEPTIONN's follows from its group."""
        compressor = make_compressor(config, width)
        self.word_bytes = len(compressor.i.p.data) // 8
        self.compressor = StreamFile(compressor, quiet=quiet)
        self.decompressor = StreamFile(make_decompressor(config, width), quiet=quiet)

    def compress(self, frames: Sequence[bytes], config: CodecConfig, **options: object) -> StreamRun:
        """Send frames of values through the compressor; ``options`` are those of ``StreamFile.run``."""
        registers = {}
        if isinstance(config, Inceptionn):
            registers = {"bound": config.bound, "mode": int(config.mode)}
        if is_stochastic(config):
            registers = {"seed": _ROUNDING_SEED}
        return self.compressor.run(frames, registers=registers, **options)  # type: ignore[arg-type]

    def decompress(self, frames: Sequence[bytes], lengths: Sequence[int], **options: object) -> StreamRun:
        """Send compressed frames, with the lengths of the uncompressed ones, through the decompressor."""
        return self.decompressor.run(frames, lengths=lengths, **options)  # type: ignore[arg-type]

    def check(
        self,
        config: CodecConfig,
        values: Float32,
        *,
        seed: int,
        stalls: tuple[float, float] = (0.0, 0.0),
    ) -> Iterator[Outcome]:
        """Compare both directions on frames of ``values``; for the second one, NumPy has compressed them.

        Raises CheckFailed as ``StreamFile.run``.
        """
        frames = make_frames(values, seed)
        streams = encode_frames(frames, config, self.word_bytes)
        groups = sum(-(-len(frame) // self.word_bytes) for frame in frames)
        run = self.compress(frames, config, stalls=stalls, seed=seed)
        triples = zip(frames, run.frames, streams, strict=True)
        differences = [_stream_difference(*triple, config) for triple in triples]
        yield _summarise("compress", frames, groups, differences, run)
        run = self.decompress(streams, [len(frame) for frame in frames], stalls=stalls, seed=seed)
        decoded = [
            decode_frame(stream, len(frame), config) for stream, frame in zip(streams, frames, strict=True)
        ]
        differences = [_difference(*triple) for triple in zip(frames, run.frames, decoded, strict=True)]
        yield _summarise("decompress", frames, groups, differences, run)


def make_frames(values: Float32, seed: int) -> list[bytes]:
    """Return frames of 1 to ``MAX_FRAME_VALUES`` values; in some frames the last value lacks bytes."""
    rng = np.random.default_rng(seed)
    frames, position = [], 0
    while position < len(values):
        frame = values[position : position + rng.integers(1, MAX_FRAME_VALUES + 1)]
        position += len(frame)
        missing = rng.integers(1, _VALUE_BYTES) if rng.random() < _CUT_SHARE else 0
        frames.append(frame.astype("<f4").tobytes()[: len(frame) * _VALUE_BYTES - missing])
    return frames


def _padded(frame: bytes) -> Float32:
    return np.frombuffer(frame + bytes(-len(frame) % _VALUE_BYTES), dtype="<f4")


def encode_frames(frames: Sequence[bytes], config: CodecConfig, word_bytes: int) -> list[bytes]:
    """Return the compressed frames of a run; each word takes the random bits of all its values."""
    streams, values = [], 0
    for frame in frames:
        streams.append(encode_frame(frame, config, values))
        values += -(-len(frame) // word_bytes) * word_bytes // _VALUE_BYTES
    return streams


def encode_frame(frame: bytes, config: CodecConfig, values: int = 0) -> bytes:
    """Return the compressed frame of any number of bytes below 64 KiB, after so many ``values`` of a run."""
    if isinstance(config, Inceptionn):  # accepts any number of bytes, not only whole values
        return packet.compress_payload(frame, config)[packet.LENGTH_BYTES :]
    seed = advance(_ROUNDING_SEED, values) if is_stochastic(config) else _ROUNDING_SEED
    return encode(_padded(frame), config, seed)


def decode_frame(stream: bytes, length: int, config: CodecConfig) -> bytes:
    """Return the ``length`` bytes of a compressed frame."""
    return decode(stream, -(-length // _VALUE_BYTES), config).astype("<f4").tobytes()[:length]


@dataclass(frozen=True)
class _Difference:
    """Differences in a frame: their number, and a text about the first."""

    count: int
    text: str


def _difference(frame: bytes, actual: bytes, expected: bytes) -> _Difference | None:
    """Compare a frame's result with the expected one, value by value."""
    if actual == expected:
        return None
    if len(actual) != len(expected):
        return _Difference(len(_padded(frame)), f"{len(actual)} bytes, not {len(expected)}")
    values, actual_values, expected_values = (
        _padded(part).view(np.uint32) for part in (frame, actual, expected)
    )
    wrong = np.flatnonzero(actual_values != expected_values)
    first = wrong[0]
    became = f"0x{actual_values[first]:08x}, not 0x{expected_values[first]:08x}"
    text = f"value {first}, 0x{values[first]:08x}, becomes {became}"
    return _Difference(len(wrong), text)


def _stream_difference(frame: bytes, actual: bytes, expected: bytes, config: CodecConfig) -> _Difference | None:
    """Compare a compressed frame; count the values that differ, if it can be decoded."""
    if actual == expected:
        return None
    position = next((index for index, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), None)
    text = f"{len(actual)} bytes, not {len(expected)}"
    if position is not None:
        text = f"byte {position} of the stream is 0x{actual[position]:02x}, not 0x{expected[position]:02x}"
    try:
        decoded = decode_frame(actual, len(frame), config)
    except InputError:
        return _Difference(len(_padded(frame)), text)
    inner = _difference(frame, decoded, decode_frame(expected, len(frame), config))
    return _Difference(inner.count, f"{text}; {inner.text}") if inner else _Difference(1, text)


def _summarise(
    direction: str,
    frames: Sequence[bytes],
    groups: int,
    differences: Sequence[_Difference | None],
    run: StreamRun,
) -> Outcome:
    numbered = [(number, difference) for number, difference in enumerate(differences) if difference]
    count = sum(difference.count for _, difference in numbered)
    if run.errors.any():
        count += int(run.errors.sum())
    first = f"frame {numbered[0][0]}: {numbered[0][1].text}" if numbered else "error is set" if count else ""
    values = sum(-(-len(frame) // _VALUE_BYTES) for frame in frames)
    return Outcome(direction, values, groups, count, first, run)
