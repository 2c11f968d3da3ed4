"""Time model of an all-reduce on fanin's ring nodes, in cycles, and its bottleneck (docs/systems/ring.md).

The AI Smart NIC's model (section IV-C) is the maximum of T_ring, T_add and T_mem. This model adds headers,
preambles, gaps, acknowledgements, and the latency of the first and the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from fanin.codec.facts import Bfp, Codec, Half, Inceptionn, Mx
from fanin.codec.golden import inceptionn
from fanin.hdl.ring.registers import ACK_DELAY
from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig, Slice
from fanin.ring.golden.all_reduce import values_of
from fanin.sim.network import SWITCH_NS
from fanin.wire.ethernet import AROUND_FRAME, FCS_BYTES, PREAMBLE_BYTES
from fanin.wire.link import LINK_CONTROL_BYTES

Vector = npt.NDArray[Any]  # of float32, or of codes of 16 bits

_SERIAL_BYTES = PREAMBLE_BYTES + FCS_BYTES  # bytes that a link adds to a frame before its arrival
_BEGIN = 130  # cycles from the descriptor to memory, and of the first word from memory
_END = 80  # cycles of the last word into memory
_PIPELINE = 22  # cycles of a frame's first word from receive buffer to replay buffer, and of the link's logic

#: Latency of decoder and encoder, of MX with blocks of two words; an added word passes both.
_CODING = {Codec.BFP: 16, Codec.INCEPTIONN: 19, Codec.MX: 19, Codec.BF16: 10, Codec.FP16: 12}


@dataclass(frozen=True, kw_only=True)
class RingTime:
    """Time of one all-reduce of ``count`` values over ``nodes`` nodes; all results in cycles.

    - ``engines``: engines that share the vector. Results are those of the first engine's ring, whose stripe is
      the longest.
    - ``word_bytes``: bytes of a word on the link if they depend on the data (INCEPTIONN); otherwise the
      codec's.
    - ``memory_gbps``: limit of memory in each direction; None: a word per cycle.

    Loss is in :class:`~fanin.sim.ring.loss.RingLoss`.
    """

    config: RingConfig
    nodes: int
    count: int
    engines: int = 1
    link: LinkConfig = field(default_factory=LinkConfig)
    switch_ns: float = SWITCH_NS
    clock_mhz: float = 250.0
    word_bytes: float | None = None
    memory_gbps: float | None = None

    @classmethod
    def of(cls, vectors: Sequence[Vector], config: RingConfig, **network: Any) -> RingTime:
        """Return the time of vectors, one per node; with INCEPTIONN, all compress like the first one."""
        count = len(vectors[0])
        size = None
        if isinstance(config.codec, Inceptionn):
            first = values_of(vectors[0], config.tensor)
            size = len(inceptionn.encode(first, config.codec)) / config.words(count)
        return cls(config=config, nodes=len(vectors), count=count, word_bytes=size, **network)

    @property
    def beat_bytes(self) -> int:
        """Bytes per beat."""
        return self.config.width // 8

    @property
    def rate(self) -> float:
        """Bytes per cycle that the link carries, at most a beat."""
        return min(self.link.gbps * 125 / self.clock_mhz, self.beat_bytes)

    def _wire(self, size: float) -> float:
        """Return the cycles in which a frame occupies its link; a MAC at the bus's rate adds nothing."""
        return (size + (AROUND_FRAME if self.rate < self.beat_bytes else 0)) / self.rate

    def _frame_bytes(self, words: int, *, plain: bool = False) -> int:
        """Return the bytes of a frame of ``words`` words: whole beats, plus one for the header.

        ``plain``: partial sums that pass in binary32 beside frames of 16-bit values.
        """
        codec = None if plain else self.config.frame_codec
        match codec:
            case None:
                size: float = self.beat_bytes
            case Bfp() | Mx() | Half():
                size = codec.stream_limits(words * self.config.lanes)[1] / words
            case Inceptionn():
                size = self.beat_bytes if self.word_bytes is None else self.word_bytes
            case _:
                raise ValueError(f"codec {codec.kind} has no time on the ring's link")
        return (-(-int(-(-words * size // 1)) // self.beat_bytes) + 1) * self.beat_bytes

    def _frames(self, part: Slice) -> list[int]:
        """Return the number of words of each frame of a slice."""
        full_frames, remainder = divmod(part.words, self.config.frame_words)
        return [self.config.frame_words] * full_frames + [remainder] * (remainder > 0)

    def _in_lanes(self, part: Slice) -> int:
        """Return the cycles of a slice in the lanes.

        A codec of blocks loses a cycle at the end of a frame whose last word's codes extend over two beats.
        """
        return part.words + sum(map(self._extends_over_beats, self._frames(part)))

    def _extends_over_beats(self, words: int) -> bool:
        """Return whether the codes of the last word of a frame are in two beats."""
        codec, lanes = self.config.frame_codec, self.config.lanes
        if not isinstance(codec, Bfp | Mx | Half):
            return False
        in_last_beat = codec.stream_limits(words * lanes)[1] % self.beat_bytes
        return 0 < in_last_beat < lanes * codec.code_bits // 8

    @property
    def stripe(self) -> int:
        """Number of values of the first engine's stripe."""
        return self.config.stripes(self.count, self.engines)[0].count

    def _slices(self) -> list[Slice]:
        """Return one slice of each segment, whose slices are equal."""
        return [segment[0] for segment in self.config.segments(self.stripe, self.nodes)]

    @property
    def steps(self) -> int:
        """Number of slices that a node sends per segment."""
        return 2 * (self.nodes - 1)

    @property
    def plain_steps(self) -> int:
        """Number of these slices that are partial sums in binary32 beside frames of 16-bit values."""
        return self.nodes - 2 if self.config.has_plain_sums else 0

    @property
    def on_link(self) -> float:
        """T_ring: all frames of a node, with an acknowledgement per ``ack_frames`` frames or per delay."""
        coded_steps = self.steps - self.plain_steps
        return sum(
            coded_steps * self._slice_on_link(part) + self.plain_steps * self._slice_on_link(part, plain=True)
            for part in self._slices()
        )

    def _slice_on_link(self, part: Slice, *, plain: bool = False) -> float:
        return sum(self._frames_on_link(part, plain=plain))

    def _frames_on_link(self, part: Slice, *, plain: bool = False) -> list[float]:
        """Return the cycles of each frame of a slice on the link, with its share of an acknowledgement."""
        ack = self._wire(LINK_CONTROL_BYTES)
        frames = [self._wire(self._frame_bytes(words, plain=plain)) for words in self._frames(part)]
        return [time + ack * max(2 / self.config.ack_frames, min(1.0, time / ACK_DELAY)) for time in frames]

    def slice_frames(self) -> list[list[float]]:
        """Return the cycles on the link of each frame of a slice, segment by segment."""
        return [self._frames_on_link(part) for part in self._slices()]

    @property
    def utilisation(self) -> float:
        """α of the paper's model: the payloads' share of a whole slice's time on the link."""
        part = Slice(0, self.config.slice_words)
        return self.config.slice_frames * self._payload / (self.rate * self._slice_on_link(part))

    @property
    def ratio(self) -> float:
        """β of the paper's model: compression ratio of a whole frame's payload."""
        return self.config.frame_words * self.beat_bytes / self._payload

    @property
    def _payload(self) -> int:
        """Bytes of a whole frame without its header."""
        return self._frame_bytes(self.config.frame_words) - self.beat_bytes

    @property
    def in_lanes(self) -> float:
        """T_add: all words through decoder, adders and encoder; the decoder sees the most words."""
        return self.steps * sum(map(self._in_lanes, self._slices()))

    @property
    def in_memory(self) -> float:
        """T_mem: every word is read once and written once, on separate channels."""
        words = self.config.words(self.stripe)
        if self.memory_gbps is None:
            return words
        return words * max(1.0, self.config.memory_width * self.clock_mhz / (self.memory_gbps * 1000))

    def transit(self, size: int) -> float:
        """Return the cycles of a frame of ``size`` bytes over both links and through the switch."""
        nanoseconds = (
            2 * (self.link.duration(size + _SERIAL_BYTES) / 1000 + self.link.delay_ns) + self.switch_ns
        )
        return nanoseconds * self.clock_mhz / 1000

    @property
    def hop(self) -> float:
        """Cycles of a frame from one node's memory or receive buffer to the next node's."""
        return self._hop()

    def _hop(self, *, plain: bool = False) -> float:
        frame = min(self.config.frame_words, self._slices()[0].words)
        size = self._frame_bytes(frame, plain=plain)
        codec = None if plain else self.config.frame_codec
        coded = 0.0 if codec is None else _CODING[codec.kind] / 2  # every other hop adds, and so codes
        return frame + 2 * size / self.beat_bytes + self.transit(size) + _PIPELINE + coded

    @property
    def in_window(self) -> float:
        """Cycles of all frames with ``replay_frames`` per round trip: the bound for short vectors."""
        frames = self.steps * sum(len(self._frames(part)) for part in self._slices())
        return frames * (self.hop + self.transit(LINK_CONTROL_BYTES)) / self.config.replay_frames

    @property
    def binds(self) -> str:
        """Name of the largest bound: link, lanes or memory."""
        bounds = {"link": self.on_link, "lanes": self.in_lanes, "memory": self.in_memory}
        return max(bounds, key=lambda name: bounds[name])

    @property
    def total(self) -> float:
        """Cycles from the descriptor to the last sum in memory.

        The link carries all slices, and the last word takes one more hop. The lanes begin with received slices
        after the node's own first slice. A slice shorter than a hop waits for the hop, except a segment's first
        slice, which is the node's own.
        """
        slices, hop = self._slices(), self.hop
        first = self._wire(self._frame_bytes(self._frames(slices[0])[0]))  # already part of the hop
        on_link = [self._slice_on_link(part) for part in slices]
        in_lanes = [self._in_lanes(part) for part in slices]
        plain = [self._slice_on_link(part, plain=True) for part in slices] if self.plain_steps else on_link
        # binary32 partial sums pass the lanes at the rate of the link
        plain_in_lanes = [max(pair) for pair in zip(in_lanes, plain, strict=True)]
        link = self._segments(on_link, plain) + hop - first
        lanes = self._segments(in_lanes, plain_in_lanes) + max(in_lanes[0], hop)
        return _BEGIN + max(link, lanes, self.in_memory, self.in_window) + _END

    def _segments(self, coded: Sequence[float], plain: Sequence[float]) -> float:
        """Return the cycles of all slices of a node, of which each but a segment's first may wait for a hop.

        ``coded``, ``plain``: cycles of a slice of each segment, with the codec and of binary32 partial sums.
        """
        hop, plain_hop = self.hop, self._hop(plain=True)
        coded_steps = self.steps - 1 - self.plain_steps
        return sum(
            own + coded_steps * max(own, hop) + self.plain_steps * max(sums, plain_hop)
            for own, sums in zip(coded, plain, strict=True)
        )
