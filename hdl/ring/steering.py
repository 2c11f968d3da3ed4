"""Separation of received frames by EtherType: the ring's and the host's."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.wire.ethernet import ETHERNET
from fanin.wire.fields import byte_length
from fanin.wire.link import ETHERTYPE_LINK

_END = byte_length(ETHERNET)  # bytes of the header; the EtherType is the last field


class ReceiveSteering(wiring.Component):
    """Switch that sends frames with the ring's EtherType to the ring's link and all other frames to the host.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits with ``error``
        Frames from the MAC; always ready, since a MAC cannot wait.
    ``ring`` : Out, packet stream of ``width`` bits with ``error``
        Frames for the ring. ``ready`` is ignored: the receiver must always accept.
    ``host`` : Out, packet stream of ``width`` bits with ``error``
        Frames for the host. ``ready`` is ignored: the receiver must always accept.

    Parameters
    ----------
    ``width`` : int
        Bits of a beat, a multiple of 8, at least 112: the first beat holds the whole header.

    Latency
    -------
    1 cycle; one beat a cycle.

    Source
    ------
    docs/systems/smart-nic.md.
    """

    def __init__(self, *, width: int):
        if width < 8 * _END:
            raise ValueError(f"width must be at least {8 * _END} bits, not {width!r}")
        self.width = width
        frames = packet_stream(width, error=True)
        super().__init__({"i": In(frames), "ring": Out(frames), "host": Out(frames)})

    def elaborate(self, platform: Any) -> Module:
        """Register each beat and, at a frame's first beat, its destination."""
        m = Module()
        i = self.i
        valid = Signal()
        first = Signal(init=1)
        is_ring = Signal()
        beat = Signal(packet_layout(self.width, error=True), reset_less=True)
        ethertype = swap_bytes(i.p.data[8 * (_END - 2) : 8 * _END])
        m.d.comb += i.ready.eq(1)
        m.d.sync += [valid.eq(i.valid), beat.eq(i.p)]
        with m.If(i.valid):
            m.d.sync += first.eq(i.p.last)
        with m.If(i.valid & first):
            m.d.sync += is_ring.eq((ethertype == ETHERTYPE_LINK) & i.p.keep[_END - 1])
        for port, takes in (self.ring, is_ring), (self.host, ~is_ring):
            m.d.comb += [port.valid.eq(valid & takes), port.p.eq(beat)]
        return m
