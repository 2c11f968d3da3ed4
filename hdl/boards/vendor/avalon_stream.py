"""Packet streams to Intel's Avalon-ST and back: there the first byte lies in the highest bits."""

from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import kept_bytes, packet_layout, packet_stream


def _swapped(data: Value) -> Value:
    """The bytes in the opposite order."""
    return Cat(data.word_select(n, 8) for n in reversed(range(len(data) // 8)))


class PacketToAvalon(wiring.Component):
    """A packet stream to an Avalon-ST sink, as Intel's MACs have one to send.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits
    ``data`` : Out(width)
        The first byte in the highest bits.
    ``empty`` : Out, range(width / 8)
        Bytes of the last beat that are none.
    ``startofpacket``, ``endofpacket``, ``valid`` : Out(1)
    ``ready`` : In(1)
        Of ready latency 0.

    Parameters
    ----------
    ``width`` : int, bits; 16 or more, 8 times a power of two

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
        """A register knows whether a packet is under way."""
        m = Module()
        i = self.i
        begun = Signal()
        m.d.comb += [
            self.data.eq(_swapped(i.p.data)),
            self.empty.eq(self.width // 8 - kept_bytes(i.p.keep)),
            self.startofpacket.eq(~begun),
            self.endofpacket.eq(i.p.last),
            self.valid.eq(i.valid),
            i.ready.eq(self.ready),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += begun.eq(~i.p.last)
        return m


class AvalonToPacket(wiring.Component):
    """An Avalon-ST source that knows no ready, as Intel's MACs have one for what came, to a packet stream.

    Members
    -------
    ``data`` : In(width)
        The first byte in the highest bits.
    ``empty`` : In, range(width / 8)
    ``endofpacket``, ``valid`` : In(1)
    ``error`` : In(1)
        Valid with ``endofpacket``.
    ``o`` : Out, packet stream of ``width`` bits with ``error``, always ready

    Parameters
    ----------
    ``width`` : int, bits; 16 or more, 8 times a power of two

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
        """Byte n is kept if fewer than all bytes behind it are empty."""
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
