"""Receiver: decompression between MAC and host."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import MAX_FRAME
from fanin.hdl.codec.inceptionn.decompressor import InceptionnDecompressor
from fanin.hdl.codec.nic.shapes import BEAT_BITS, GROUP, Events, check_max_frame
from fanin.hdl.codec.nic.stage import connect_stage
from fanin.hdl.stream.packet import packet_stream


class InceptionnReceiver(wiring.Component):
    """Receiver that restores marked packets between MAC and host.

    UDP and TCP packets over IPv4 with ToS 0x28 get their payload back; packets with ToS 0x2C get their ToS
    back; all other frames pass unchanged. Frames keep their order. A frame leaves after it has arrived
    completely, and without a pause of its own.

    Dropped are frames with ``error``, frames above ``max_frame``, and packets with a broken compressed payload.
    A payload is broken if it ends early, is not shorter than its stated length, or would make a frame above
    ``max_frame``.

    Members
    -------
    ``i`` : In, packet stream of 256 bits with ``error``
        Frames from the MAC. ``i`` waits while the host stalls ``o`` and the queues are full. A MAC that cannot
        wait needs a queue before ``i`` that drops whole frames.
    ``enable`` : In, 1
        0: all frames pass unchanged, except those with ``error`` or above ``max_frame``, which are dropped.
    ``o`` : Out, packet stream of 256 bits
        Frames for the host.
    ``events`` : Out, Events
        Frames decompressed (``coded``), received raw, bypassed and dropped; bytes received and sent.

    Parameters
    ----------
    ``max_frame`` : int
        Bytes of the longest frame without FCS, 128 to 16384.

    Latency
    -------
    From the last beat in to the first beat out: at most 25 cycles for a bypassed frame; for others 48 plus the
    beats by which the frame grows. A frame of n beats, in or out, whichever are more, takes n + 6 cycles, at
    least 10.

    Source
    ------
    INCEPTIONN, section VI; docs/systems/inceptionn-nic.md.
    """

    def __init__(self, *, max_frame: int = MAX_FRAME):
        check_max_frame(max_frame)
        self.max_frame = max_frame
        super().__init__(
            {
                "i": In(packet_stream(BEAT_BITS, error=True)),
                "enable": In(1),
                "o": Out(packet_stream(BEAT_BITS)),
                "events": Out(Events),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the stage around the decompressor."""
        m = Module()
        m.submodules.codec = decompressor = InceptionnDecompressor(group=GROUP)
        connect_stage(m, self, decompressor, receive=True)
        return m
