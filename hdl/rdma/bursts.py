"""A payload's bursts on AXI4: one, or two if it crosses a 4 KiB boundary."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import BOUNDARY, CACHE_BUFFERABLE_MODIFIABLE, Burst
from fanin.hdl.rdma.shapes import SIZE_BITS, lane_bits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma.facts import check_path

PAGE_BITS = BOUNDARY.bit_length() - 1


def reach(lane: Any, size: Any, *, width: int) -> Any:
    """How far ``size`` bytes from ``lane`` on reach: the last lane, and above its bits the number of words."""
    return lane + size + (width // 8 - 1)


def last_byte(address: Any, size: Any) -> Any:
    """The place of a payload's last byte in the page of its first: one bit more if that is in the next page."""
    return (address[:PAGE_BITS] + size - 1)[: PAGE_BITS + 1]


class PayloadBursts(wiring.Component):
    """Cut a payload into INCR bursts of whole words, none of which crosses a 4 KiB boundary.

    Members
    -------
    ``command`` : In, stream of ``address``, ``size`` and ``tag``
        1 to 4096 bytes from byte ``address`` on; ``ready`` follows ``o.ready`` within the cycle.
    ``o`` : Out, stream of ``address``, ``length``, ``first``, ``last`` and ``tag``
        A burst: of its first word, the address in bytes; its words less one; whether it is its payload's first
        one, and last one; the payload's tag.

    Parameters
    ----------
    ``width`` : int, bits of a word; 128, 256 or 512
    ``address_width`` : int, bits; 12 to 47
    ``tag`` : any shape

    Latency
    -------
    1 cycle from a payload to its first burst. A burst a cycle.

    Source
    ------
    Arm IHI 0022, A3.4.1.
    """

    def __init__(self, *, width: int, address_width: int, tag: ShapeLike):
        check_path(width=width, address_width=address_width)
        self.width = width
        self.address_width = address_width
        self.tag = tag
        self._place_bits = PAGE_BITS - lane_bits(width)
        command = {"address": address_width, "size": SIZE_BITS, "tag": tag}
        burst = {"address": address_width, "length": self._place_bits, "first": 1, "last": 1, "tag": tag}
        super().__init__(
            {
                "command": In(stream.Signature(data.StructLayout(command))),
                "o": Out(stream.Signature(data.StructLayout(burst))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """When the first burst has left, the registers hold what lies after the boundary."""
        m = Module()
        command, o = self.command.payload, self.o
        size_bits = lane_bits(self.width)
        valid = Signal()
        page = Signal(self.address_width - PAGE_BITS, reset_less=True)
        place = Signal(self._place_bits, reset_less=True)  # of the first word in its page
        end = Signal(self._place_bits, reset_less=True)  # of the last word in its
        crosses = Signal(reset_less=True)
        second = Signal(reset_less=True)
        tag = Signal(self.tag, reset_less=True)
        m.d.comb += [
            self.command.ready.eq(~valid | o.ready & ~crosses),
            o.valid.eq(valid),
            o.payload.address.eq(Cat(Const(0, size_bits), place, page)),
            o.payload.length.eq(Mux(crosses, ~place, (end - place)[: self._place_bits])),
            o.payload.first.eq(~second),
            o.payload.last.eq(~crosses),
            o.payload.tag.eq(tag),
        ]
        with m.If(self.command.ready):
            m.d.sync += [
                valid.eq(self.command.valid),
                Cat(place, page).eq(command.address[size_bits:]),
                Cat(end, crosses).eq(last_byte(command.address, command.size)[size_bits:]),
                second.eq(0),
                tag.eq(command.tag),
            ]
        with m.Elif(o.ready):
            m.d.sync += [page.eq(page + 1), place.eq(0), crosses.eq(0), second.eq(1)]
        return m


def drive_addresses(m: Module, axi: Any, channel: str, bursts: Any, go: Any = 1) -> None:
    """Move bursts into a queue before the channel ``ar`` or ``aw``, in the cycles in which ``go`` is high.

    Of two, so that ``bursts.ready`` does not follow that of the channel.
    """
    layout = data.StructLayout({name: bursts.payload.shape()[name].shape for name in ("address", "length")})
    m.submodules[channel] = queue = StreamFIFO(shape=layout, depth=2)

    def port(name: str) -> Any:
        return getattr(axi, channel + name)

    m.d.comb += [
        queue.i.valid.eq(bursts.valid & go),
        bursts.ready.eq(queue.i.ready & go),
        *(queue.i.payload[name].eq(bursts.payload[name]) for name in layout.members),
        port("valid").eq(queue.o.valid),
        queue.o.ready.eq(port("ready")),
        port("addr").eq(queue.o.payload.address),
        port("len").eq(queue.o.payload.length),
        port("size").eq((len(axi.rdata if channel == "ar" else axi.wdata) // 8).bit_length() - 1),
        port("burst").eq(Burst.INCR),
        port("cache").eq(CACHE_BUFFERABLE_MODIFIABLE),
    ]
