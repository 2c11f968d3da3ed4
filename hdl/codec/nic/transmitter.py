"""Compression on the way from the host to the MAC."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import MAX_BOUND, MAX_FRAME, Mode
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.codec.nic.shapes import BEAT_BITS, GROUP, Events, check_max_frame
from fanin.hdl.codec.nic.stage import connect_stage
from fanin.hdl.stream.packet import packet_stream


class InceptionnTransmitter(wiring.Component):
    """Compress the payloads of marked packets on their way from the host to the MAC.

    UDP and TCP packets over IPv4 with ToS 0x28 leave with a compressed payload or, where that is not shorter,
    as they are with ToS 0x2C; all other frames leave as they came. Their order is kept. Frames above
    ``max_frame`` are dropped. A frame leaves when it is there in full, and never pauses for itself.

    Members
    -------
    ``i`` : In, packet stream of 256 bits
    ``enable`` : In, 1
        0: all frames leave as they came.
    ``bound`` : In, 4
        b of the error bound 2^-b, 1 to 15; steady while a packet with ToS 0x28 is inside.
    ``mode`` : In, Mode
        Steady likewise.
    ``o`` : Out, packet stream of 256 bits
    ``events`` : Out, Events
        Frames compressed (``coded``), sent raw, bypassed and dropped; bytes that came and that leave.

    Parameters
    ----------
    ``max_frame`` : int, 128 to 16384
        Bytes of the longest frame, without FCS.

    Latency
    -------
    From the last beat in to the first beat out, at most 25 cycles for a frame that is bypassed, 48 for others.
    A frame of n beats takes n + 4 cycles, at least 10; where nothing shrinks, a 16th more.

    Source
    ------
    INCEPTIONN, section VI; docs/systems/inceptionn-nic.md.
    """

    def __init__(self, *, max_frame: int = MAX_FRAME):
        check_max_frame(max_frame)
        self.max_frame = max_frame
        super().__init__(
            {
                "i": In(packet_stream(BEAT_BITS)),
                "enable": In(1),
                "bound": In(range(MAX_BOUND + 1)),
                "mode": In(Mode),
                "o": Out(packet_stream(BEAT_BITS)),
                "events": Out(Events),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A stage around the compressor."""
        m = Module()
        m.submodules.codec = compressor = InceptionnCompressor(group=GROUP)
        m.d.comb += [compressor.bound.eq(self.bound), compressor.mode.eq(self.mode)]
        connect_stage(m, self, compressor, receive=False)
        return m
