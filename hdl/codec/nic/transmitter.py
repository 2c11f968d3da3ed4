"""Transmitter: compression between host and MAC."""

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
    """Transmitter that compresses the payloads of marked packets between host and MAC.

    UDP and TCP packets over IPv4 with ToS 0x28 leave with a compressed payload. If that payload is not shorter,
    the packet leaves unchanged with ToS 0x2C. All other frames pass unchanged. Frames keep their order. Frames
    above ``max_frame`` are dropped. A frame leaves after it has arrived completely, and without a pause of its
    own.

    Members
    -------
    ``i`` : In, packet stream of 256 bits
        Frames from the host.
    ``enable`` : In, 1
        0: all frames pass unchanged.
    ``bound`` : In, 4
        Exponent b of the error bound 2^-b, 1 to 15; constant while a packet with ToS 0x28 is inside.
    ``mode`` : In, Mode
        ``strict`` or ``published``; constant while a packet with ToS 0x28 is inside.
    ``o`` : Out, packet stream of 256 bits
        Frames for the MAC.
    ``events`` : Out, Events
        Frames compressed (``coded``), sent raw, bypassed and dropped; bytes received and sent.

    Parameters
    ----------
    ``max_frame`` : int
        Bytes of the longest frame without FCS, 128 to 16384.

    Latency
    -------
    From the last beat in to the first beat out: at most 25 cycles for a bypassed frame, 48 for others. A frame
    of n beats takes n + 4 cycles, at least 10; if nothing shrinks, a 16th more.

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
        """Build the stage around the compressor."""
        m = Module()
        m.submodules.codec = compressor = InceptionnCompressor(group=GROUP)
        m.d.comb += [compressor.bound.eq(self.bound), compressor.mode.eq(self.mode)]
        connect_stage(m, self, compressor, receive=False)
        return m
