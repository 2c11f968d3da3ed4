"""Channels of the store: a queue of beats, and the requests that fill or empty it."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.port import BEAT_BITS
from fanin.hdl.layers.burst_requests import BEAT_ADDRESS_BITS, BurstRequest, BurstRequests
from fanin.hdl.layers.interface import FRAME_BITS
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO

_FRAMES = {"restart": In(1), "base": In(BEAT_ADDRESS_BITS), "frames": In(FRAME_BITS), "frame": In(1)}


def _connect_frames(m: Module, channel: Any, requests: BurstRequests) -> None:
    """Connect the channel's frame settings to its requests."""
    m.d.comb += [getattr(requests, name).eq(getattr(channel, name)) for name in _FRAMES]


class ReadChannel(wiring.Component):
    """Channel of frames from memory, beat by beat.

    Members
    -------
    ``restart``, ``base``, ``frames``, ``frame`` : In, frames that may be read, see BurstRequests
    ``request`` : Out, stream of BurstRequest
        Bursts for which the queue has room.
    ``beat`` : In(512), ``arrived`` : In(1)
        Data from memory, valid with ``arrived``.
    ``o`` : Out, stream of 512 bits

    Parameters
    ----------
    ``beats`` : int, beats of a frame
    ``depth`` : int, beats of the queue; at least two bursts for full rate
    ``wrap`` : int, frames of the ring; 0: no ring

    Latency
    -------
    1 cycle from ``arrived`` to ``o``; 3 cycles from a beat that leaves to the request for its place.

    Source
    ------
    docs/systems/cluster.md, "Store".
    """

    def __init__(self, *, beats: int, depth: int, wrap: int = 0):
        self.beats = beats
        self.depth = depth
        self.wrap = wrap
        super().__init__(
            {
                **_FRAMES,
                "request": Out(stream.Signature(BurstRequest)),
                "beat": In(BEAT_BITS),
                "arrived": In(1),
                "o": Out(stream.Signature(BEAT_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Report room for a beat whenever a beat leaves the queue."""
        m = Module()
        m.submodules.requests = requests = BurstRequests(
            beats=self.beats, limit=self.depth, ready_beats=self.depth, wrap=self.wrap
        )
        m.submodules.queue = queue = StreamFIFO(shape=BEAT_BITS, depth=self.depth)
        _connect_frames(m, self, requests)
        connect_typed(m, requests.request, wiring.flipped(self.request))
        connect_typed(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [queue.i.valid.eq(self.arrived), queue.i.payload.eq(self.beat)]
        m.d.sync += requests.beat.eq(self.o.valid & self.o.ready)
        return m


class WriteChannel(wiring.Component):
    """Channel of frames to memory, beat by beat.

    Members
    -------
    ``restart``, ``base``, ``frames``, ``frame`` : In, frames that may be written, see BurstRequests
    ``i`` : In, stream of 512 bits
    ``request`` : Out, stream of BurstRequest
        Bursts whose beats are in the queue.
    ``o`` : Out, stream of 512 bits
        Beats to memory; all beats of a requested burst are available without a pause.
    ``level`` : Out, range(depth + 1)
        Beats in the queue; registered.

    Parameters
    ----------
    ``beats`` : int, beats of a frame
    ``depth`` : int, beats of the queue; at least two bursts for full rate
    ``wrap`` : int, frames of the ring; 0: no ring

    Latency
    -------
    3 cycles from a burst's last beat to its request.

    Source
    ------
    docs/systems/cluster.md, "Store".
    """

    def __init__(self, *, beats: int, depth: int, wrap: int = 0):
        self.beats = beats
        self.depth = depth
        self.wrap = wrap
        super().__init__(
            {
                **_FRAMES,
                "i": In(stream.Signature(BEAT_BITS)),
                "request": Out(stream.Signature(BurstRequest)),
                "o": Out(stream.Signature(BEAT_BITS)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Report a beat as ready whenever one enters the queue."""
        m = Module()
        m.submodules.requests = requests = BurstRequests(beats=self.beats, limit=self.depth, wrap=self.wrap)
        m.submodules.queue = queue = StreamFIFO(shape=BEAT_BITS, depth=self.depth)
        _connect_frames(m, self, requests)
        connect_typed(m, requests.request, wiring.flipped(self.request))
        connect_typed(m, wiring.flipped(self.i), queue.i)
        connect_typed(m, queue.o, wiring.flipped(self.o))
        m.d.comb += self.level.eq(queue.level)
        m.d.sync += requests.beat.eq(self.i.valid & self.i.ready)
        return m
