"""Ring all-reduce: its sizes, and how a vector is cut into stripes and slices (docs/systems/ring.md).

A host with several ring engines gives each engine a stripe of the vector. An engine reduces its vector segment
by segment. A segment has one slice per node; in each of the 2(N - 1) hops of a segment, every node sends one
slice to the next node. A slice is sent in frames of whole words of ``lanes`` values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from fanin.base.limits import check_address_width
from fanin.codec.facts import FLOAT_BITS, Bf16, Codec, CodecConfig, Fp16
from fanin.wire.fields import field_bits
from fanin.wire.link import FRAME_COUNTS, MAX_FRAMES
from fanin.wire.ring import RING

MIN_NODES = 2
MAX_NODES = (1 << field_bits(RING, "nodes")) - 1
LANES = (2, 4, 8, 16)
MAX_FRAME_WORDS = 128
MIN_TENSOR_LANES = 8
#: Formats of the values in memory, in the order of their numbers in headers and registers.
TENSORS: dict[str, Bf16 | Fp16 | None] = {"fp32": None, "bf16": Bf16(), "fp16": Fp16()}
MAX_MEMORY_WORDS = 1 << 14


@dataclass(frozen=True)
class Slice:
    """A slice of a segment: its first word in the vector, and its words, including any after the vector's
    end.
    """

    start: int
    words: int


@dataclass(frozen=True)
class Stripe:
    """Part of a vector that one engine reduces: first value, at a word boundary, and number of values."""

    start: int
    count: int


@dataclass(frozen=True, kw_only=True)
class RingConfig:
    """Sizes of a ring node, equal on all nodes. Raises ValueError that names parameter, value and limit.

    - ``lanes``: values per word.
    - ``frame_words``: words per frame.
    - ``slice_frames``: frames per slice.
    - ``buffer_frames``: frames that the receive buffer holds, a power of two.
    - ``replay_frames``: unacknowledged frames that the link keeps, at most.
    - ``address_width``: bits of a byte address in memory.
    - ``memory_words``: words buffered in each direction in addition to those that memory latency needs. They
      help a memory slower than the lanes: a segment's first half only reads words, its second half also stores
      them.
    - ``codec``: codec on the link, if any.
    - ``tensor``: format of the values in memory, ``Bf16()`` or ``Fp16()``, which are added in binary32 and
      rounded once; None: binary32.

    The defaults are those of a 100 Gb/s node with frames of 4 KiB.
    """

    lanes: int = 16
    frame_words: int = 64
    slice_frames: int = 16
    buffer_frames: int = 32
    replay_frames: int = 32
    address_width: int = 40
    memory_words: int = 0
    codec: CodecConfig | None = None
    tensor: Bf16 | Fp16 | None = None

    def __post_init__(self) -> None:
        if self.lanes not in LANES:
            raise ValueError(f"lanes must be one of {', '.join(map(str, LANES))}, not {self.lanes!r}")
        if self.frame_words not in range(1, MAX_FRAME_WORDS + 1):
            raise ValueError(f"frame_words must be 1 to {MAX_FRAME_WORDS}, not {self.frame_words!r}")
        if self.slice_frames not in range(1, MAX_FRAMES):
            raise ValueError(f"slice_frames must be 1 to {MAX_FRAMES - 1}, not {self.slice_frames!r}")
        if self.buffer_frames not in FRAME_COUNTS or self.buffer_frames <= self.slice_frames:
            raise ValueError(
                f"buffer_frames must be a power of two above slice_frames, {self.slice_frames}, and at most "
                f"{MAX_FRAMES}, not {self.buffer_frames!r}"
            )
        if self.replay_frames not in FRAME_COUNTS:
            raise ValueError(
                f"replay_frames must be a power of two from 2 to {MAX_FRAMES}, not {self.replay_frames!r}"
            )
        check_address_width(self.address_width)
        if self.memory_words not in range(MAX_MEMORY_WORDS + 1):
            raise ValueError(f"memory_words must be 0 to {MAX_MEMORY_WORDS}, not {self.memory_words!r}")
        if self.tensor not in TENSORS.values():
            raise ValueError(f"tensor must be none, bf16 or fp16, rounded to nearest, not {self.tensor}")
        if self.tensor and self.lanes < MIN_TENSOR_LANES:
            raise ValueError(f"lanes must be at least {MIN_TENSOR_LANES} with a tensor, not {self.lanes}")
        if self.codec is not None:
            self.codec.check_frame(lanes=self.lanes, frame_values=self.frame_values)

    @property
    def ack_frames(self) -> int:
        """Frames, taken or consumed, per acknowledgement; the sender learns of room for a slice in time."""
        return max(1, (self.buffer_frames - self.slice_frames) // 2)

    @property
    def width(self) -> int:
        """Bits of a word of binary32 values, and of the MAC's data."""
        return self.lanes * FLOAT_BITS

    @property
    def value_bytes(self) -> int:
        """Bytes of a value in memory."""
        return (self.tensor.code_bits if self.tensor else FLOAT_BITS) // 8

    @property
    def word_bytes(self) -> int:
        """Bytes of a word in memory."""
        return self.lanes * self.value_bytes

    @property
    def memory_width(self) -> int:
        """Bits of memory's port: a word."""
        return 8 * self.word_bytes

    @property
    def tensor_name(self) -> str:
        """Name of the values' format in memory, a key of ``TENSORS``."""
        return str(self.tensor.kind) if self.tensor else "fp32"

    @property
    def frame_codec(self) -> CodecConfig | None:
        """Codec of frames of own values and of totals: without a codec, the tensor's format, which is exact."""
        return self.codec or self.tensor

    @property
    def has_plain_sums(self) -> bool:
        """Whether partial sums travel in binary32 beside frames of 16-bit values."""
        return self.tensor is not None and self.codec is None

    @property
    def frame_values(self) -> int:
        """Values of a whole frame."""
        return self.frame_words * self.lanes

    @property
    def slice_words(self) -> int:
        """Words of a whole slice."""
        return self.slice_frames * self.frame_words

    @property
    def frame_beats(self) -> int:
        """Most beats of a frame's payload."""
        beat_bytes = self.width // 8
        word_bytes = beat_bytes if self.codec is None else self.codec.max_word_bytes(self.lanes)
        return -(-self.frame_words * word_bytes // beat_bytes)

    @property
    def codec_kind(self) -> Codec:
        """Codec on the link."""
        return Codec.NONE if self.codec is None else self.codec.kind

    def words(self, count: int) -> int:
        """Words of a vector of ``count`` values."""
        return -(-count // self.lanes)

    def padded_values(self, count: int, nodes: int) -> int:
        """Values of a vector of ``count`` values and of the zeros after it, to the end of the last slice.

        Each of the nodes encodes as many.
        """
        *_, segment = self.segments(count, nodes)
        return (segment[-1].start + segment[-1].words) * self.lanes

    def stripes(self, count: int, engines: int) -> list[Stripe]:
        """Divide a vector of ``count`` values among ``engines``: in order, in whole words.

        Sizes differ by at most one word, and no stripe is longer than the first. With fewer words than engines,
        some stripes are empty.
        """
        words = self.words(count)
        bounds = [min(-(-words * n // engines) * self.lanes, count) for n in range(engines + 1)]
        return [Stripe(start, end - start) for start, end in pairwise(bounds)]

    def segments(self, count: int, nodes: int) -> Iterator[list[Slice]]:
        """Yield the slices of each segment of a vector; slice c begins at node c.

        Slices have ``slice_words`` words while at least two whole segments remain. A remainder between one
        and two whole segments is halved, so that the last slices are not much shorter than a hop.
        """
        words, start = self.words(count), 0
        while start < words:
            remaining = -(-(words - start) // nodes)
            size = remaining if remaining <= self.slice_words else min(self.slice_words, -(-remaining // 2))
            yield [Slice(start + c * size, size) for c in range(nodes)]
            start += nodes * size


def check_binary32(config: RingConfig) -> None:
    """Raise ValueError for nodes of 16-bit tensors, which the caller's hosts do not serve."""
    if config.tensor:
        raise ValueError(f"tensor must be None, not {config.tensor}: the hosts have binary32 values")


#: Named sizes, without a codec: ``tiny`` for tests, ``u280`` for a 100 Gb/s card, ``prototype`` for the 40 Gb/s
#: NIC of AI Smart NIC. The prototype, too, has frames of 4 KiB. Its slices are longer than a hop, and its
#: buffers suit a PCIe that is slower than the lanes.
PRESETS = {
    "tiny": RingConfig(lanes=8, frame_words=4, slice_frames=2, buffer_frames=4, replay_frames=4),
    "prototype": RingConfig(
        lanes=8, frame_words=128, slice_frames=8, buffer_frames=16, replay_frames=16, memory_words=1536
    ),
    "u280": RingConfig(),
}
