"""Flow model of an edge between devices: a row is sent in frames, each as soon as it is full and has room.

The model is a connection of docs/systems/link.md. It has a buffer of unacknowledged frames at the sender, a
wire, and a buffer of received frames at the receiver. With ``Losses`` a lost frame and those after it are
delivered once it has been repeated.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fanin.base.limits import CLOCK_MHZ
from fanin.cnn.facts import Network
from fanin.cnn.flow.graph import Actor, Channel, Pattern, Source, at_first, at_last, next_token
from fanin.cnn.flow.parts import Parts
from fanin.cnn.flow.times import Cycles
from fanin.cnn.layers.family import WORD_BITS
from fanin.wire.connection import MAC_WIDTH, MAX_PAYLOAD_WORDS, RowFrames
from fanin.wire.ethernet import AROUND_FRAME, FCS_BYTES, PREAMBLE_BYTES
from fanin.wire.link import FLOOR_CYCLES

Edge = tuple[int, int]  #: consuming stage, port

WIRE_SECONDS = 600e-9  #: two links of 100 ns and a switch of 400 ns, as in the co-simulation
PORT_RATE = 100e9  #: bits a second of a device's port, as in the co-simulation
SEND_LATENCY = 5  #: cycles from a frame in the sender's buffer to its first beat at the MAC
RECEIVE_LATENCY = 4  #: cycles from a frame's last beat at the MAC until its first beat may be taken
ACK_DELAY = 70  #: cycles, at most, from a received frame to its ACK
BEAT_WORDS = MAC_WIDTH // WORD_BITS
BEAT_BYTES = MAC_WIDTH // 8
ACK_BEATS = 1  #: beats of an ACK
TIMER_MARGIN = ACK_DELAY + FLOOR_CYCLES  #: cycles by which a frame's timer exceeds the round trip
DRAWN_FRAMES = 1 << 14  #: frames after which the losses recur


@dataclass(frozen=True)
class Losses:
    """Frames that one direction of a link loses."""

    drop: float  #: probability that a frame is lost, below 1
    interval: float  #: average cycles between two frames
    seed: tuple[int, ...]  #: seed of the losses

    def late(self, latency: float, answer: float) -> Cycles:
        """Return by how many cycles each frame is late; 0 if it is not lost.

        A lost frame is repeated when the next frame's answer has arrived, or when its timer ends, and so is a
        lost repetition.

        ``latency``: cycles of a frame.
        ``answer``: cycles of its answer.
        """
        transmissions = np.random.default_rng(self.seed).geometric(1 - self.drop, DRAWN_FRAMES)
        recovery = min(self.interval, TIMER_MARGIN) + answer + latency
        return (transmissions - 1).astype(np.float64) * recovery


@dataclass(frozen=True)
class Link:
    """Network link of an edge between devices, the same in both directions."""

    frames: RowFrames  #: frames of a row
    rows: int  #: rows of a map
    rate: float  #: bits per cycle of the slower port
    wire: float  #: cycles from MAC to MAC, without the transmission of a frame's bits
    losses: Losses | None = None  #: frames lost; None for none

    @cached_property
    def paces(self) -> Cycles:
        """Cycles that each frame of a row occupies a port."""
        wire_bytes = np.array(self.frames.wire_bytes())
        return np.maximum((wire_bytes - AROUND_FRAME) / BEAT_BYTES, 8 * wire_bytes / self.rate)

    @property
    def latency(self) -> float:
        """Cycles from a frame in the sender's buffer until it may be taken, for a row's longest frame."""
        return SEND_LATENCY + self._crossing(self.frames.frame_beats + 1) + RECEIVE_LATENCY

    @property
    def round_trip(self) -> float:
        """Cycles, at most, from a frame in the sender's buffer until its ACK frees the place."""
        return self.latency + ACK_DELAY + self._answer

    @property
    def _answer(self) -> float:
        """Cycles of an ACK that is sent at once."""
        return SEND_LATENCY + self._crossing(ACK_BEATS) + RECEIVE_LATENCY

    def _crossing(self, beats: int) -> float:
        """Return the cycles from a frame's first beat at the sender's MAC to its last beat at the receiver's
        MAC.

        Each MAC and the switch store the whole frame before they send it on, so four times add up: beats into
        the MAC, bits on two links, the wire, beats out of the MAC.
        """
        bits = 8 * (BEAT_BYTES * beats + PREAMBLE_BYTES + FCS_BYTES)
        later_beats = beats - 1
        return later_beats * max(1, MAC_WIDTH / self.rate) + 2 * bits / self.rate + self.wire + later_beats

    def carry(self, parts: Parts, source: Source, width_in: int, width_out: int) -> Source:
        """Add the link's actors, and return the received stream.

        ``width_in``: words of a transfer of ``source``.
        ``width_out``: words of a transfer of the received stream.
        """
        frames, graph = self.frames, parts.graph
        beats = np.arange(1, frames.beats + 1)
        complete = Pattern.of(np.where(beats < frames.beats, beats // frames.frame_beats, frames.frames))
        packed_words = parts.gearbox("words", source, frames.row, width_in, BEAT_WORDS, self.rows)
        fills = parts.actor("fills frames", frames.beats * self.rows)
        sender, receiver = (parts.channel("the connection", frames.in_flight) for _ in range(2))
        graph.take(fills, packed_words)
        graph.give(fills, sender, complete, next_token(complete))
        carries = parts.actor("the connection", frames.frames * self.rows, self.paces)
        if self.losses is None:
            graph.take(carries, sender, delay=self.round_trip)
            graph.give(carries, receiver, delay=self.latency)
        else:
            self._deliver(parts, carries, sender, receiver, self.losses.late(self.latency, self._answer))
        empties = parts.actor("empties frames", frames.beats * self.rows)
        words = parts.channel("words that have come", 1, 0)
        graph.take(empties, receiver, next_token(complete), complete)
        graph.give(empties, words)
        return Source(
            parts.gearbox("words that have come", Source(words), frames.row, BEAT_WORDS, width_out, self.rows)
        )

    def _deliver(self, parts: Parts, carries: Actor, sender: Channel, receiver: Channel, late: Cycles) -> None:
        """Deliver frames in order, each ``late`` cycles after it would arrive.

        The actor fires twice a frame: when the frame would arrive, and when it is delivered. Only then is the
        place in the sender's buffer freed, by the answer.
        """
        graph, frames = parts.graph, self.frames.frames * self.rows
        wire = parts.channel("frames on the wire", self.frames.in_flight)
        delivers = parts.actor("delivers frames", 2 * frames, np.stack([late, np.zeros_like(late)], 1).ravel())
        graph.take(carries, sender)
        graph.take(delivers, sender, at_first(2), at_last(2), self.round_trip - self.latency)
        graph.give(carries, wire, delay=self.latency)
        graph.take(delivers, wire, at_first(2), at_last(2))
        graph.give(delivers, receiver, at_last(2), at_first(2), 0)

    def arrivals(self, departures: Cycles) -> Cycles:
        """Return the cycle in which each position may be taken.

        ``departures``: cycles at the sender, row by row.
        """
        columns = len(departures) // self.rows
        position_words = self.frames.row // columns  # words of a position
        positions = np.arange(1, columns + 1)
        last_frames = (positions * position_words - 1) // MAX_PAYLOAD_WORDS  # frame of a position's last word
        last_words = np.minimum((last_frames + 1) * MAX_PAYLOAD_WORDS, self.frames.row) - 1
        return departures.reshape(self.rows, columns)[:, last_words // position_words].ravel() + self.latency


@dataclass(frozen=True)
class Wiring:
    """Network between devices: their clock, and the rates of their ports."""

    clock: float = CLOCK_MHZ * 1e6  #: clock of all devices in Hz
    #: bits per second by device; default PORT_RATE
    rates: Mapping[Hashable, float] = field(default_factory=dict)

    def links(self, network: Network, devices: Sequence[Hashable]) -> dict[Edge, Link]:
        """Return the link of each edge between two devices. ``devices``: device of each stage."""
        links = {}
        for index, stage in enumerate(network.stages):
            for port, source in enumerate(stage.sources):
                ends = devices[source], devices[index]
                if ends[0] != ends[1]:
                    shape = network.stages[source].layer.output
                    rate = min(self.rates.get(end, PORT_RATE) for end in ends) / self.clock
                    frames = RowFrames(shape.w * shape.c, MAC_WIDTH)
                    links[index, port] = Link(frames, shape.h, rate, WIRE_SECONDS * self.clock)
        return links
