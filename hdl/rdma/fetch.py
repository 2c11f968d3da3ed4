"""Reader of payloads from memory; rotates each byte to its lane in the frame."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import OUTSTANDING, AXI4ReadSignature, Resp
from fanin.hdl.rdma.bursts import PayloadBursts, drive_addresses
from fanin.hdl.rdma.merge import window, window_layout, window_sums, window_sums_layout
from fanin.hdl.rdma.shapes import fetch_layout, lane_bits, words_bits
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.lanes import rotated
from fanin.rdma.facts import check_path, payload_words

_FINE_BITS = 4  # lower bits of a rotation, applied before a register; the upper bits are applied after it


def _burst_layout(width: int) -> data.StructLayout:
    """Return the layout of a burst in flight: rotation of its words in lanes, and its payload's last burst."""
    return data.StructLayout({"rotation": lane_bits(width), "last": 1})


class PayloadFetch(wiring.Component):
    """Reader of payloads that start at any byte; announces each payload when it may be sent.

    A payload is one burst, or two if it crosses a 4 KiB boundary. Its memory words are rotated so that its
    first byte is at ``lane``; other bytes of these words are undefined. A payload is read only when the FIFO
    has room for it and for all data in flight, so ``rready`` is always high. All bursts have ID 0, so data
    arrive in order. A payload must not wrap past the end of the address space.

    Members
    -------
    ``command`` : In, stream of :func:`~fanin.hdl.rdma.shapes.fetch_layout`
        Payloads to read. ``ready`` does not depend combinationally on an input.
    ``axi`` : Out, :class:`~fanin.hdl.bus.axi4.AXI4ReadSignature`
        Memory port.
    ``o`` : Out, stream of ``width`` bits
        Rotated words.
    ``packet`` : Out, stream of :func:`~fanin.hdl.rdma.merge.window_layout`
        Instruction to merge a payload's words. One for each payload, in order, after ``start_words`` of its
        words have arrived.
    ``error`` : Out(1)
        Pulse: a response was not OKAY. Its data are delivered.
    ``room`` : Out(1)
        The FIFO has room for a payload; commands of the last 4 cycles may not be counted yet.
    ``free`` : Out(1)
        The next command is read immediately: it waits only for ``axi``, not for ``o`` or ``packet``.
    ``reading`` : Out(1)
        Memory still owes words of a payload whose command was taken.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512.
    ``address_width`` : int
        Bits of an address, 12 to 47.
    ``depth`` : int
        Words of the FIFO, at least those of a payload.
    ``start_words`` : int
        Words that must have arrived before a payload is announced; 0: all. Other values need a memory that
        delivers a word a cycle once it begins.
    ``outstanding`` : int
        Limit of bursts in flight, and of payloads in flight and not taken from ``packet``; at least 1.

    Latency
    -------
    ``arvalid`` comes 2 cycles after the command. A word on ``o`` comes 2 cycles after it is on ``axi``, and its
    payload on ``packet`` in the same cycle as the word that allows it. One burst a cycle, one command in 3
    cycles. One word a cycle across payloads, if ``outstanding`` covers the memory's response time and that time
    is at most ``depth`` less a payload's words and 6 cycles.

    Source
    ------
    docs/systems/rdma.md; Arm IHI 0022.
    """

    def __init__(
        self,
        *,
        width: int = 512,
        address_width: int = 40,
        depth: int = 512,
        start_words: int = 0,
        outstanding: int = OUTSTANDING,
    ):
        check_path(width=width, address_width=address_width)
        self._max_words = max_words = payload_words(width)
        if not isinstance(depth, int) or depth < max_words:
            raise ValueError(f"depth must be at least a payload, {max_words} words, not {depth!r}")
        if start_words not in range(max_words + 1):
            raise ValueError(f"start_words must be from 0 to {max_words}, not {start_words!r}")
        if not isinstance(outstanding, int) or outstanding < 1:
            raise ValueError(f"outstanding must be at least 1, not {outstanding!r}")
        self.width = width
        self.address_width = address_width
        self.depth = depth
        self.start_words = start_words
        self.outstanding = outstanding
        super().__init__(
            {
                "command": In(stream.Signature(fetch_layout(width=width, address_width=address_width))),
                "axi": Out(AXI4ReadSignature(data_width=width, address_width=address_width)),
                "o": Out(stream.Signature(width)),
                "packet": Out(stream.Signature(window_layout(width))),
                "error": Out(1),
                "room": Out(1),
                "free": Out(1),
                "reading": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Issue bursts, rotate their words into a FIFO, and announce payloads.

        ``in_flight`` holds the bursts whose words have not all arrived, ``waiting`` the payloads not announced.
        """
        m = Module()
        tag = window_sums_layout(self.width)
        bursts = PayloadBursts(width=self.width, address_width=self.address_width, tag=tag)
        m.submodules.bursts = bursts
        m.submodules.in_flight = in_flight = StreamFIFO(shape=_burst_layout(self.width), depth=self.outstanding)
        m.submodules.waiting = waiting = StreamFIFO(shape=window_layout(self.width), depth=self.outstanding)
        self._plan(m, bursts.command)
        self._issue(m, bursts.o, in_flight.i, waiting.i)
        self._announce(m, waiting.o, self._words(m, in_flight.o))
        axi = self.axi
        m.d.comb += [axi.rready.eq(1), self.reading.eq(bursts.o.valid | (in_flight.level != 0))]
        m.d.sync += self.error.eq(axi.rvalid & (axi.rresp != Resp.OKAY))
        return m

    def _plan(self, m: Module, command: Any) -> None:
        """Cut a payload into bursts; their tag carries the sums for its window."""
        payload = self.command.payload
        lane = payload.address[: lane_bits(self.width)]
        sums = window_sums(width=self.width, source=lane, target=payload.lane, size=payload.size)
        m.d.comb += [
            command.valid.eq(self.command.valid),
            self.command.ready.eq(command.ready),
            command.payload.address.eq(payload.address),
            command.payload.size.eq(payload.size),
            *(command.payload.tag[name].eq(value) for name, value in sums.items()),
        ]

    def _issue(self, m: Module, bursts: Any, in_flight: Any, waiting: Any) -> None:
        """Issue a payload's first burst only when there is room for all of its words, which it claims.

        ``has_room`` includes a claim 3 cycles after the burst, so it is forced low in the two cycles between.
        """
        free_words = Signal(range(self.depth + 1), init=self.depth)  # unclaimed words of the FIFO
        has_room = Signal(init=1)
        leaves = Signal()  # a word left the FIFO in the previous cycle
        go = Signal()
        begins = Signal()
        claimed = Signal()  # a payload began in the previous cycle
        claimed_words = Signal(words_bits(self.width))  # words of that payload
        tag = {name: bursts.payload.tag[name] for name in window_sums_layout(self.width).members}
        fields = window(width=self.width, **tag)
        drive_addresses(m, self.axi, "ar", bursts, go)
        m.d.comb += [
            self.free.eq(has_room & waiting.ready & ~bursts.valid),
            go.eq(in_flight.ready & (~bursts.payload.first | has_room & waiting.ready)),
            begins.eq(bursts.valid & bursts.ready & bursts.payload.first),
            waiting.valid.eq(begins),
            *(waiting.payload[name].eq(value) for name, value in fields.items()),
            in_flight.valid.eq(bursts.valid & bursts.ready),
            in_flight.payload.rotation.eq(fields["lane"]),
            in_flight.payload.last.eq(bursts.payload.last),
        ]
        m.d.sync += [
            leaves.eq(self.o.valid & self.o.ready),
            claimed.eq(begins),
            claimed_words.eq(Mux(begins, fields["words"], 0)),
            free_words.eq(free_words + leaves - claimed_words),
            self.room.eq(free_words >= self._max_words),
            has_room.eq((free_words >= self._max_words) & ~begins & ~claimed),
        ]

    def _words(self, m: Module, burst: Any) -> Signal:
        """Rotate words into the FIFO, which has room for them.

        Return a signal that is 1 when the word that enters the FIFO allows its payload to be announced.
        """
        m.submodules.fifo = fifo = StreamFIFO(shape=self.width, depth=self.depth)
        connect_typed(m, fifo.o, wiring.flipped(self.o))
        axi = self.axi
        ends = Signal()  # the word on ``axi`` is its payload's last
        is_enough = Signal()  # the word on ``axi`` allows its payload to be announced
        allows = Signal()  # the word that enters the FIFO allows its payload to be announced
        fine, coarse = burst.payload.rotation[:_FINE_BITS], burst.payload.rotation[_FINE_BITS:]
        half_rotated = Signal(self.width, reset_less=True)
        later_coarse = Signal.like(coarse)
        m.d.comb += [
            burst.ready.eq(axi.rvalid & axi.rlast),
            ends.eq(axi.rlast & burst.payload.last),
            fifo.i.payload.eq(rotated(half_rotated, later_coarse, unit=8 << _FINE_BITS)),
        ]
        m.d.sync += [
            half_rotated.eq(rotated(axi.rdata, fine)),
            later_coarse.eq(coarse),
            fifo.i.valid.eq(axi.rvalid),
            allows.eq(axi.rvalid & is_enough),
        ]
        if not self.start_words:
            m.d.comb += is_enough.eq(ends)
            return allows
        missing = Signal(range(self.start_words), init=self.start_words - 1)  # words before the one that allows
        done = Signal()  # the payload has been announced
        m.d.comb += is_enough.eq(~done & (ends | (missing == 0)))
        with m.If(axi.rvalid):
            m.d.sync += [
                missing.eq(Mux(ends, self.start_words - 1, missing - 1)),
                done.eq((done | is_enough) & ~ends),
            ]
        return allows

    def _announce(self, m: Module, waiting: Any, allows: Signal) -> None:
        """Offer each payload that may be sent; ``allowed`` counts them."""
        m.submodules.allowed = allowed = Credits(limit=self.outstanding)
        transfer = self.packet.valid & self.packet.ready
        m.d.comb += [
            allowed.give.eq(allows),
            allowed.take.eq(transfer),
            self.packet.valid.eq(allowed.ok),
            self.packet.payload.eq(waiting.payload),
            waiting.ready.eq(transfer),
        ]
