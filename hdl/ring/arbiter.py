"""Two kinds of frames on one link."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.ring.share import SHARE_BITS, LinkShare
from fanin.hdl.stream.packet import packet_stream

#: A hold takes 8 beats of the host that wait: after its end the ring's next frame comes before these are gone.
AHEAD_BITS = 3
QUIET = 4  # cycles without a frame of the ring after which it has none: between two it may pause for one


class TransmitArbiter(wiring.Component):
    """Send the ring's frames and the host's, one after the other, each side with its share of the link.

    The ring goes first, but for one frame of a host that is behind its share. So a frame on ``ring`` waits for
    one frame of the host at most. While ``hold`` keeps the ring from further frames with values, such a host
    sends more. A side without frames leaves its time to the other.

    Members
    -------
    ``ring`` : In, packet stream of ``width`` bits
    ``host`` : In, packet stream of ``width`` bits
        Frames are there in full: valid in every cycle of a frame, as ``ring`` is.
    ``level`` : In, range(capacity + 1)
        Beats that wait on ``host``: those of whole frames.
    ``share`` : In, 4
        Of the host, in sixteenths; 0: what the ring leaves.
    ``o`` : Out, packet stream of ``width`` bits
        Does not pause inside a frame.
    ``hold`` : Out, 1
        No frame with values may be begun.

    Parameters
    ----------
    ``width`` : int, bits, a multiple of 8
    ``max_frame`` : int, bytes of the host's longest frame
    ``capacity`` : int, beats of the host that may wait, more than 8

    Latency
    -------
    0 cycles, of two LUTs; one beat a cycle, frames back to back. A host that has had its share begins 4 cycles
    after the ring's last frame.

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
        """Who sends is chosen with the first beat of a frame, and stays until its last one is taken."""
        m = Module()
        m.submodules.link_share = link_share = LinkShare(width=self.width, max_frame=self.max_frame)
        ring, host, o, owed = self.ring, self.host, self.o, link_share.owed
        chosen = Signal()  # a frame stands on ``o``
        chosen_host = Signal()  # and it is the host's
        passed = Signal()  # a frame of the host has gone before the one that waits on ``ring``
        silence = Signal(range(QUIET + 1), init=QUIET)
        from_host = Signal()
        quiet = silence == QUIET
        host_first = host.valid & Mux(ring.valid, owed & ~passed, owed | quiet)
        m.d.comb += [
            from_host.eq(Mux(chosen, chosen_host, host_first)),
            o.valid.eq(Mux(from_host, host.valid, ring.valid)),
            o.p.eq(Mux(from_host, host.p, ring.p)),
            host.ready.eq(from_host & o.ready),
            ring.ready.eq(~from_host & o.ready),
        ]
        m.d.sync += [
            chosen.eq(o.valid & ~(o.ready & o.p.last)),
            chosen_host.eq(from_host),
            silence.eq(Mux(ring.valid, 0, Mux(quiet, silence, silence + 1))),
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
