"""AXI4 bursts of a payload: one, or two if it crosses a 4 KiB boundary."""

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


def words_and_last_lane(lane: Any, size: Any, *, width: int) -> Any:
    """Return the last lane (low bits) and the words (high bits) of ``size`` bytes from ``lane`` on."""
    return lane + size + (width // 8 - 1)


def last_byte(address: Any, size: Any) -> Any:
    """Return the offset of a payload's last byte in its page; the extra top bit is 1 in the next page."""
    return (address[:PAGE_BITS] + size - 1)[: PAGE_BITS + 1]


class PayloadBursts(wiring.Component):
    """Cutter of payloads into INCR bursts of whole words that do not cross a 4 KiB boundary.

    Members
    -------
    ``command`` : In, stream of ``address``, ``size`` and ``tag``
        Payload of 1 to 4096 bytes from byte ``address`` on. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, stream of ``address``, ``length``, ``first``, ``last`` and ``tag``
        A burst. ``address``: byte address of its first word. ``length``: its words less 1. ``first``, ``last``:
        it is its payload's first or last burst. ``tag``: the payload's tag.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512.
    ``address_width`` : int
        Bits of an address, 12 to 47.
    ``tag`` : any shape
        Shape of the tag.

    Latency
    -------
    1 cycle from a payload to its first burst; one burst a cycle.

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
        """Keep the current burst in registers; after the first burst they hold the part beyond the boundary."""
        m = Module()
        command, o = self.command.payload, self.o
        size_bits = lane_bits(self.width)
        valid = Signal()
        page = Signal(self.address_width - PAGE_BITS, reset_less=True)
        place = Signal(self._place_bits, reset_less=True)  # index of the burst's first word in its page
        end = Signal(self._place_bits, reset_less=True)  # index of the payload's last word in its page
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
    """Move bursts into a queue before channel ``ar`` or ``aw``, in the cycles in which ``go`` is high.

    The queue has two places, so ``bursts.ready`` does not depend combinationally on the channel's.
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
