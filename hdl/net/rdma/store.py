"""Payloads to memory, from any byte on."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4WriteSignature, Resp
from fanin.hdl.net.rdma.bursts import PAGE_BITS, PayloadBursts, drive_addresses, last_byte, reach
from fanin.hdl.net.rdma.merge import WordMerge, window, window_layout
from fanin.hdl.net.rdma.shapes import lane_bits, store_layout
from fanin.hdl.net.rdma.tally import Tally
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.lanes import ones_from, rotated
from fanin.rdma import check_path

_LATE_BITS = 2  # of a turn, behind a register; the others are in front of it
_AHEAD = 16  # payloads whose addresses may leave before their words
_AWAITED = data.StructLayout({"some": 1, "crosses": 1})  # whether a payload has bytes, and takes two bursts


def _run_layout(width: int) -> data.StructLayout:
    """Where a payload lies: its first word's place in the page, its first byte's lane and its last one's."""
    bits = lane_bits(width)
    return data.StructLayout({"place": PAGE_BITS - bits, "first": bits, "last": bits})


class PayloadStore(wiring.Component):
    """Write payloads to memory, from any byte on and from any lane; or throw them away.

    A payload is one burst, or two if it crosses a 4 KiB boundary; only its bytes are strobed, and they go in
    the order of their addresses. All bursts carry the ID 0, so that responses come back in order; ``bready``
    is always high. AW and W wait for one another in no order that a slave may choose: the words of a burst are
    offered whether or not its address has been taken, and the addresses of up to 16 payloads before their
    words. A payload must not wrap past the end of the address space.

    Members
    -------
    ``command`` : In, stream of :func:`~fanin.hdl.net.rdma.shapes.store_layout`
        ``ready`` follows ``axi.awready`` within the cycle.
    ``i`` : In, stream of ``width`` bits
        As many words as lanes ``lane`` to ``lane + size - 1`` reach over, none if ``size`` is 0. One may be
        taken before its command. ``ready`` follows ``axi.wready`` within the cycle.
    ``axi`` : Out, :class:`~fanin.hdl.bus.axi4.AXI4WriteSignature`
        Registered.
    ``done`` : Out(1)
        Pulse: the responses of the next command with ``keep`` are all in, and those of all commands before it.
    ``error`` : Out(1)
        Pulse: a response was not OKAY.

    Parameters
    ----------
    ``width`` : int, bits; 128, 256 or 512
    ``address_width`` : int, bits; 12 to 47
    ``outstanding`` : int, payloads whose responses are to come; at least 1

    Latency
    -------
    ``awvalid`` is 2 cycles after the command. ``wvalid`` is 3, if the word waits on ``i``, and 4 cycles if the
    first byte moves to a lower lane. ``done`` is 1 cycle after the response. A payload takes a cycle for
    each word that comes, and one more if what is held then makes another; that one is also the next payload's
    first, if its first word is only held (it moves to lower lanes, or is thrown away). So payloads of one
    alignment take as many cycles as they come in words, or as they leave in if these are more. A command a
    cycle; one of two bursts takes two.

    Source
    ------
    docs/rdma.md; Arm IHI 0022.
    """

    def __init__(self, *, width: int = 512, address_width: int = 40, outstanding: int = 64):
        check_path(width=width, address_width=address_width)
        if not isinstance(outstanding, int) or outstanding < 1:
            raise ValueError(f"outstanding must be at least 1, not {outstanding!r}")
        self.width = width
        self.address_width = address_width
        self.outstanding = outstanding
        super().__init__(
            {
                "command": In(stream.Signature(store_layout(width=width, address_width=address_width))),
                "i": In(stream.Signature(width)),
                "axi": Out(AXI4WriteSignature(data_width=width, address_width=address_width)),
                "done": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A command goes four ways: to AW, to the merge, to W, and to those that await responses."""
        m = Module()
        bursts = PayloadBursts(width=self.width, address_width=self.address_width, tag=0)
        m.submodules.bursts = bursts
        m.submodules.windows = windows = StreamFIFO(shape=window_layout(self.width), depth=_AHEAD)
        m.submodules.runs = runs = StreamFIFO(shape=_run_layout(self.width), depth=_AHEAD)
        m.submodules.awaited = awaited = StreamFIFO(shape=_AWAITED, depth=self.outstanding)
        self._plan(m, bursts.command, windows.i, runs.i, awaited.i)
        drive_addresses(m, self.axi, "aw", bursts.o)
        self._words(m, self._merged(m, windows.o), runs.o)
        self._responses(m, awaited.o)
        return m

    def _plan(self, m: Module, bursts: Any, windows: Any, runs: Any, awaited: Any) -> None:
        """One addition, in front of each queue."""
        command, bits = self.command.payload, lane_bits(self.width)
        lane = command.address[:bits]
        leaves = reach(lane, command.size, width=self.width)
        fields = window(width=self.width, at=command.lane, to=lane, size=command.size)
        fields["flush"] &= command.keep
        go, some = (Signal(name=name) for name in ("go", "some"))
        ready = bursts.ready & windows.ready & runs.ready & awaited.ready
        m.d.comb += [
            self.command.ready.eq(ready),
            go.eq(self.command.valid & ready),
            some.eq(command.size != 0),
            bursts.valid.eq(go & some & command.keep),
            bursts.payload.address.eq(command.address),
            bursts.payload.size.eq(command.size),
            windows.valid.eq(go & some),
            *(windows.payload[name].eq(value) for name, value in fields.items()),
            windows.payload.drop.eq(~command.keep),
            runs.valid.eq(go & some & command.keep),
            runs.payload.place.eq(command.address[bits:PAGE_BITS]),
            runs.payload.first.eq(lane),
            runs.payload.last.eq(leaves[:bits]),
            awaited.valid.eq(go & command.keep),
            awaited.payload.some.eq(some),
            awaited.payload.crosses.eq(last_byte(command.address, command.size)[-1]),
        ]

    def _merged(self, m: Module, windows: Any) -> Any:
        """Merge neighbours and turn the words to their lanes, within a quarter of a word first."""
        m.submodules.word = word = StreamFIFO(shape=self.width, depth=1)
        m.submodules.merge = merge = WordMerge(width=self.width, late=_LATE_BITS)
        m.submodules.merged = merged = StreamFIFO(shape=merge.o.payload.shape(), depth=1)
        connect_typed(m, wiring.flipped(self.i), word.i)
        connect_typed(m, windows, merge.command)
        m.d.comb += [
            merge.i.valid.eq(word.o.valid),
            merge.i.payload.eq(rotated(word.o.payload, windows.payload.lane[:-_LATE_BITS])),
            word.o.ready.eq(merge.i.ready),
        ]
        connect_typed(m, merge.o, merged.i)
        return merged.o

    def _words(self, m: Module, words: Any, runs: Any) -> None:
        """Strobe the bytes of the payload, and end a burst at its end and at the end of a page."""
        axi, size, word = self.axi, self.width // 8, words.payload
        next_place = Signal.like(runs.payload.place)
        place = Signal.like(next_place)
        moves = Signal()
        m.d.comb += [
            place.eq(Mux(word.first, runs.payload.place, next_place)),
            words.ready.eq(~axi.wvalid | axi.wready),
            moves.eq(words.valid & words.ready),
            runs.ready.eq(moves & word.last),
        ]
        from_first = ones_from(runs.payload.first, size)
        behind_last = (ones_from(runs.payload.last, size) << 1)[:size]
        with m.If(axi.wready):
            m.d.sync += axi.wvalid.eq(0)
        with m.If(moves):
            m.d.sync += [
                axi.wvalid.eq(1),
                axi.wdata.eq(rotated(word.data, word.late, unit=self.width >> _LATE_BITS)),
                axi.wstrb.eq(Mux(word.first, from_first, -1) & Mux(word.last, ~behind_last, -1)),
                axi.wlast.eq(word.last | place.all()),
                next_place.eq(place + 1),
            ]

    def _responses(self, m: Module, awaited: Any) -> None:
        """Responses come in the order of the bursts; those that wait for payloads of nothing are counted."""
        m.submodules.answered = answered = Tally(limit=2 * self.outstanding)
        axi = self.axi
        one_more = Signal()  # the first of the payload's two bursts has been answered
        m.d.comb += [
            axi.bready.eq(1),
            answered.up.eq(axi.bvalid),
            answered.down.eq(awaited.valid & awaited.payload.some & answered.some),
            self.done.eq(
                awaited.valid & (~awaited.payload.some | answered.some & (~awaited.payload.crosses | one_more))
            ),
            awaited.ready.eq(self.done),
        ]
        with m.If(answered.down):
            m.d.sync += one_more.eq(awaited.payload.crosses & ~one_more)
        m.d.sync += self.error.eq(axi.bvalid & (axi.bresp != Resp.OKAY))
