"""Flow model of an edge between devices: rows are sent in frames, each when it is full and has room.

The model is a connection of docs/systems/link.md without loss: a buffer of unacknowledged frames at the
sender, a wire, and a buffer of received frames at the receiver.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fanin.base.limits import CLOCK_MHZ
from fanin.cnn.facts import Network
from fanin.cnn.flow.graph import Pattern, Source, after
from fanin.cnn.flow.parts import Parts
from fanin.cnn.flow.times import Cycles
from fanin.cnn.layers.family import WORD_BITS
from fanin.wire.connection import MAC_WIDTH, MAX_PAYLOAD_WORDS, RowFrames
from fanin.wire.ethernet import AROUND_FRAME, FCS_BYTES, PREAMBLE_BYTES

Edge = tuple[int, int]  #: consuming stage, port

WIRE_SECONDS = 600e-9  #: two links of 100 ns and a switch of 400 ns, as in the co-simulation
PORT_RATE = 100e9  #: bits a second of a device's port, as in the co-simulation
SEND = 5  #: cycles from a frame in the sender's buffer to its first beat at the MAC
RECEIVE = 4  #: cycles from a frame's last beat at the MAC until its first beat may be taken
ANSWER = 70  #: cycles, at most, until a received frame is acknowledged
BEAT_WORDS = MAC_WIDTH // WORD_BITS
BEAT_BYTES = MAC_WIDTH // 8
CONTROL_BEATS = 1  #: of an ACK


@dataclass(frozen=True)
class Link:
    """Link of an edge between devices, equal both ways.

    ``frames``: frames of a row.
    ``rows``: rows of a map.
    ``rate``: bits a cycle of the slower port.
    ``wire``: cycles from MAC to MAC, without those of a frame's bits.
    """

    frames: RowFrames
    rows: int
    rate: float
    wire: float

    @cached_property
    def paces(self) -> Cycles:
        """Cycles that each frame of a row occupies a port."""
        wire = np.array(self.frames.wire_bytes())
        return np.maximum((wire - AROUND_FRAME) / BEAT_BYTES, 8 * wire / self.rate)

    @property
    def latency(self) -> float:
        """Cycles from a frame in the sender's buffer until it may be taken, for a row's longest frame."""
        return SEND + self._crossing(self.frames.frame_beats + 1) + RECEIVE

    @property
    def acknowledged(self) -> float:
        """Cycles, at most, from a frame in the sender's buffer until its place is free."""
        return self.latency + ANSWER + SEND + self._crossing(CONTROL_BEATS) + RECEIVE

    def _crossing(self, beats: int) -> float:
        """Return a frame's cycles from MAC to MAC. Both MACs and the switch store it whole."""
        bits = 8 * (BEAT_BYTES * beats + PREAMBLE_BYTES + FCS_BYTES)
        after_first = beats - 1
        return after_first * max(1, MAC_WIDTH / self.rate) + 2 * bits / self.rate + self.wire + after_first

    def carry(self, parts: Parts, source: Source, i: int, o: int) -> Source:
        """Add the link's actors for a stream of ``i`` words. Return the received stream of ``o`` words."""
        cut, graph = self.frames, parts.graph
        beats = np.arange(1, cut.beats + 1)
        whole = Pattern.of(np.where(beats < cut.beats, beats // cut.frame_beats, cut.frames))
        packed = parts.geared("words", source, cut.row, i, BEAT_WORDS, self.rows)
        fills = parts.actor("fills frames", cut.beats * self.rows)
        sender, receiver = (parts.channel("the connection", cut.in_flight) for _ in range(2))
        graph.take(fills, packed)
        graph.give(fills, sender, whole, after(whole))
        carries = parts.actor("the connection", cut.frames * self.rows, self.paces)
        graph.take(carries, sender, delay=self.acknowledged)
        graph.give(carries, receiver, delay=self.latency)
        empties = parts.actor("empties frames", cut.beats * self.rows)
        words = parts.channel("words that have come", 1, 0)
        graph.take(empties, receiver, after(whole), whole)
        graph.give(empties, words)
        return Source(parts.geared("words that have come", Source(words), cut.row, BEAT_WORDS, o, self.rows))

    def arrivals(self, ready: Cycles) -> Cycles:
        """Return when each position's words may be taken. ``ready``: when they were given, row by row."""
        columns = len(ready) // self.rows
        each = self.frames.row // columns  # words of a position
        last = (np.arange(1, columns + 1) * each - 1) // MAX_PAYLOAD_WORDS  # frame of a position's last word
        ends = np.minimum((last + 1) * MAX_PAYLOAD_WORDS, self.frames.row) - 1
        return ready.reshape(self.rows, columns)[:, ends // each].ravel() + self.latency


@dataclass(frozen=True)
class Wiring:
    """Network between devices.

    ``clock``: clock of all devices, in Hz.
    ``rates``: bits a second of each device's port; default: PORT_RATE.
    """

    clock: float = CLOCK_MHZ * 1e6
    rates: Mapping[Hashable, float] = field(default_factory=dict)

    def links(self, network: Network, devices: Sequence[Hashable]) -> dict[Edge, Link]:
        """Return the link of each cut edge. ``devices``: device of each stage."""
        found = {}
        for index, stage in enumerate(network.stages):
            for port, source in enumerate(stage.sources):
                ends = devices[source], devices[index]
                if ends[0] != ends[1]:
                    shape = network.stages[source].layer.output
                    rate = min(self.rates.get(end, PORT_RATE) for end in ends) / self.clock
                    frames = RowFrames(shape.w * shape.c, MAC_WIDTH)
                    found[index, port] = Link(frames, shape.h, rate, WIRE_SECONDS * self.clock)
        return found
