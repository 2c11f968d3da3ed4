"""Bridges between packet streams and Intel's Avalon-ST, whose first byte is in the highest bits."""

from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import kept_bytes, packet_layout, packet_stream


def _swapped(data: Value) -> Value:
    """Return the bytes in reverse order."""
    return Cat(data.word_select(n, 8) for n in reversed(range(len(data) // 8)))


class PacketToAvalon(wiring.Component):
    """Bridge from a packet stream to an Avalon-ST sink, such as the transmit port of Intel's MACs.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits
        Packets.
    ``data`` : Out(width)
        Beat; the first byte is in the highest bits.
    ``empty`` : Out, range(width / 8)
        Unused bytes of the last beat.
    ``startofpacket``, ``endofpacket`` : Out(1)
        The beat is the packet's first or last.
    ``valid`` : Out(1)
        The beat is valid.
    ``ready`` : In(1)
        The beat is taken; ready latency 0.

    Parameters
    ----------
    ``width`` : int
        Bits of a beat, a power of two, at least 16.

    Latency
    -------
    0 cycles; one beat a cycle.

    Source
    ------
    Intel, Avalon Interface Specifications (MNL-AVABUSREF), "Packet Data Transfers".
    """

    def __init__(self, *, width: int):
        _check_width(width)
        self.width = width
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "data": Out(width),
                "empty": Out(range(width // 8)),
                "startofpacket": Out(1),
                "endofpacket": Out(1),
                "valid": Out(1),
                "ready": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Track in a register whether a packet has begun."""
        m = Module()
        i = self.i
        in_packet = Signal()
        m.d.comb += [
            self.data.eq(_swapped(i.p.data)),
            self.empty.eq(self.width // 8 - kept_bytes(i.p.keep)),
            self.startofpacket.eq(~in_packet),
            self.endofpacket.eq(i.p.last),
            self.valid.eq(i.valid),
            i.ready.eq(self.ready),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += in_packet.eq(~i.p.last)
        return m


class AvalonToPacket(wiring.Component):
    """Bridge to a packet stream from an Avalon-ST source without ready, such as an Intel MAC's receive port.

    Members
    -------
    ``data`` : In(width)
        Beat; the first byte is in the highest bits.
    ``empty`` : In, range(width / 8)
        Unused bytes of the last beat.
    ``endofpacket`` : In(1)
        The beat is the packet's last.
    ``valid`` : In(1)
        The beat is valid.
    ``error`` : In(1)
        The packet has an error; valid with ``endofpacket``.
    ``o`` : Out, packet stream of ``width`` bits with ``error``, always ready
        Packets.

    Parameters
    ----------
    ``width`` : int
        Bits of a beat, a power of two, at least 16.

    Latency
    -------
    0 cycles; one beat a cycle.

    Source
    ------
    Intel, Avalon Interface Specifications (MNL-AVABUSREF), "Packet Data Transfers".
    """

    def __init__(self, *, width: int):
        _check_width(width)
        self.width = width
        super().__init__(
            {
                "data": In(width),
                "empty": In(range(width // 8)),
                "endofpacket": In(1),
                "valid": In(1),
                "error": In(1),
                "o": Out(stream.Signature(packet_layout(width, error=True), always_ready=True)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep byte n if fewer bytes are empty than follow from n on."""
        m = Module()
        o, size = self.o, self.width // 8
        m.d.comb += [
            o.p.data.eq(_swapped(self.data)),
            o.p.keep.eq(Cat(~self.endofpacket | (self.empty < size - n) for n in range(size))),
            o.p.last.eq(self.endofpacket),
            o.p.error.eq(self.error & self.endofpacket),
            o.valid.eq(self.valid),
        ]
        return m


def _check_width(width: int) -> None:
    if width < 16 or width & (width - 1):
        raise ValueError(f"width must be a power of two from 16, not {width!r}")
