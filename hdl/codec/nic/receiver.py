"""Decompression on the way from the MAC to the host."""

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
    """Restore marked packets on their way from the MAC to the host.

    UDP and TCP packets over IPv4 with ToS 0x28 get their payload back, those with ToS 0x2C their ToS; all other
    frames leave as they came. Their order is kept. Dropped are frames with ``error``, frames above
    ``max_frame``, and packets whose compressed payload is broken: it ends early, is not shorter than the length
    that it states, or would make a frame above ``max_frame``. A frame leaves when it is there in full, and
    never pauses for itself.

    Members
    -------
    ``i`` : In, packet stream of 256 bits with ``error``
        Waits while the host stalls ``o`` and the queues are full: a MAC that cannot wait needs a queue in
        front that drops whole frames.
    ``enable`` : In, 1
        0: all frames leave as they came, but for those with ``error`` and above ``max_frame``.
    ``o`` : Out, packet stream of 256 bits
    ``events`` : Out, Events
        Frames decompressed (``coded``), taken raw, bypassed and dropped; bytes that came and that leave.

    Parameters
    ----------
    ``max_frame`` : int, 128 to 16384
        Bytes of the longest frame, without FCS.

    Latency
    -------
    From the last beat in to the first beat out, at most 25 cycles for a frame that is bypassed, for others 48
    and the beats by which the frame grows. A frame of n beats, in or out, whichever are more, takes n + 6
    cycles, at least 10.

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
        """A stage around the decompressor."""
        m = Module()
        m.submodules.codec = decompressor = InceptionnDecompressor(group=GROUP)
        connect_stage(m, self, decompressor, receive=True)
        return m
