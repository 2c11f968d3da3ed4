"""Arbiter between the ring's frames and the host's frames on one link."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.ring.share import SHARE_BITS, LinkShare
from fanin.hdl.stream.packet import packet_stream

#: log2 of the host's waiting beats that a hold needs. The ring's next frame arrives before 8 beats are sent.
AHEAD_BITS = 3
# cycles without a ring frame before the ring counts as idle; it may pause for 1 cycle between frames
IDLE_CYCLES = 4


class TransmitArbiter(wiring.Component):
    """Arbiter that sends the ring's and the host's frames in turn and keeps each side's share of the link.

    The ring has priority. A host that has had less than its share may send one frame before each frame of the
    ring. A frame on ``ring`` therefore waits for at most one frame of the host. ``hold`` stops new data frames
    of the ring while the host has had less than its share. A side without frames leaves its time to the other.

    Members
    -------
    ``ring`` : In, packet stream of ``width`` bits
        Frames of the ring; valid in every cycle of a frame.
    ``host`` : In, packet stream of ``width`` bits
        Frames of the host; valid in every cycle of a frame.
    ``level`` : In, range(capacity + 1)
        Beats of whole frames that wait on ``host``.
    ``share`` : In, 4
        Share of the host in sixteenths of the link. 0: the host gets only the time that the ring leaves.
    ``o`` : Out, packet stream of ``width`` bits
        Frames for the MAC, without a pause inside a frame.
    ``hold`` : Out, 1
        The ring must not begin another data frame.

    Parameters
    ----------
    ``width`` : int
        Bits of a beat, a multiple of 8.
    ``max_frame`` : int
        Bytes of the host's longest frame.
    ``capacity`` : int
        Beats of the host that may wait, more than 8.

    Latency
    -------
    0 cycles, two LUTs in series; one beat a cycle, frames back to back. A host that has had its share begins 4
    cycles after the ring's last frame.

    Source
    ------
    docs/systems/smart-nic.md, "Shares".
    """

    def __init__(self, *, width: int, max_frame: int, capacity: int):
        self.width = width
        self.max_frame = max_frame
        self.capacity = capacity
        frames = packet_stream(width)
        super().__init__(
            {
                "ring": In(frames),
                "host": In(frames),
                "level": In(range(capacity + 1)),
                "share": In(SHARE_BITS),
                "o": Out(frames),
                "hold": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Choose the sender at a frame's first beat and keep it until the last beat is taken."""
        m = Module()
        m.submodules.link_share = link_share = LinkShare(width=self.width, max_frame=self.max_frame)
        ring, host, o, owed = self.ring, self.host, self.o, link_share.owed
        in_frame = Signal()  # a frame has begun on ``o`` and is not complete
        frame_is_host = Signal()  # that frame is the host's
        passed = Signal()  # the host has sent a frame since the one on ``ring`` began to wait
        idle_count = Signal(range(IDLE_CYCLES + 1), init=IDLE_CYCLES)  # cycles without a frame of the ring
        from_host = Signal()
        ring_idle = idle_count == IDLE_CYCLES
        host_first = host.valid & Mux(ring.valid, owed & ~passed, owed | ring_idle)
        m.d.comb += [
            from_host.eq(Mux(in_frame, frame_is_host, host_first)),
            o.valid.eq(Mux(from_host, host.valid, ring.valid)),
            o.p.eq(Mux(from_host, host.p, ring.p)),
            host.ready.eq(from_host & o.ready),
            ring.ready.eq(~from_host & o.ready),
        ]
        m.d.sync += [
            in_frame.eq(o.valid & ~(o.ready & o.p.last)),
            frame_is_host.eq(from_host),
            idle_count.eq(Mux(ring.valid, 0, Mux(ring_idle, idle_count, idle_count + 1))),
            self.hold.eq(owed & self.level[AHEAD_BITS:].any()),
        ]
        with m.If(ring.valid):
            m.d.sync += passed.eq(from_host)
        m.d.comb += [
            link_share.share.eq(self.share),
            link_share.beat.valid.eq(o.valid & o.ready),
            link_share.beat.host.eq(from_host),
            link_share.beat.last.eq(o.p.last),
            link_share.beat.keep.eq(o.p.keep),
        ]
        return m
