"""Payloads from memory, rotated so that each byte stands at its lane in the frame."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4ReadSignature, Resp
from fanin.hdl.rdma.bursts import PayloadBursts, drive_addresses
from fanin.hdl.rdma.merge import window, window_layout, window_sums, window_sums_layout
from fanin.hdl.rdma.shapes import fetch_layout, lane_bits, words_bits
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.lanes import rotated
from fanin.rdma.facts import check_path, payload_words

_FINE_BITS = 4  # of a rotation, before a register; the coarse bits are applied after it


def _burst_layout(width: int) -> data.StructLayout:
    """A burst in flight: by how many lanes its words are rotated, and whether it is its payload's last one."""
    return data.StructLayout({"rotation": lane_bits(width), "last": 1})


class PayloadFetch(wiring.Component):
    """Read payloads from any byte on, and announce each once it may be sent.

    A payload is one burst, or two if it crosses a 4 KiB boundary. The words of memory in which it lies are
    rotated so that its first byte stands at ``lane``; their other bytes are undefined. A payload is read when
    the FIFO has room for it and for all that is in flight: ``rready`` is always high. All bursts carry the ID
    0, so that data come back in order. A payload must not wrap past the end of the address space.

    Members
    -------
    ``command`` : In, stream of :func:`~fanin.hdl.rdma.shapes.fetch_layout`
        ``ready`` follows no input within the cycle.
    ``axi`` : Out, :class:`~fanin.hdl.bus.axi4.AXI4ReadSignature`
    ``o`` : Out, stream of ``width`` bits
    ``packet`` : Out, stream of :func:`~fanin.hdl.rdma.merge.window_layout`
        One for each payload, in order, once ``start_words`` of its words are there: how to merge them.
    ``error`` : Out(1)
        Pulse: a response was not OKAY. Its data are delivered.
    ``room`` : Out(1)
        The FIFO has room for a payload; a command of the last 4 cycles may not have been counted yet.
    ``free`` : Out(1)
        The next command is read at once: it waits for ``axi`` alone, not for ``o`` or ``packet``.
    ``reading`` : Out(1)
        Words of a payload whose command was taken are still to come from memory.

    Parameters
    ----------
    ``width`` : int, bits; 128, 256 or 512
    ``address_width`` : int, bits; 12 to 47
    ``depth`` : int, words of the FIFO; at least a payload's
    ``start_words`` : int
        Words that must be there when a payload is announced; 0: all of it. Any other number is for a memory
        that gives a word a cycle once it begins.
    ``outstanding`` : int, at least 1
        Bursts in flight, and payloads in flight that were not taken from ``packet``.

    Latency
    -------
    ``arvalid`` is 2 cycles after the command, a word on ``o`` 2 cycles after it is on ``axi``, and its payload
    on ``packet`` in the same cycle as the word that allows it. One burst a cycle, one command in 3 cycles. One
    word a cycle, across payloads, while the memory answers within ``depth`` less a payload's words and 6 cycles
    and ``outstanding`` covers that time.

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
        outstanding: int = 64,
    ):
        check_path(width=width, address_width=address_width)
        self._max_words = most = payload_words(width)
        if not isinstance(depth, int) or depth < most:
            raise ValueError(f"depth must be at least a payload, {most} words, not {depth!r}")
        if start_words not in range(most + 1):
            raise ValueError(f"start_words must be from 0 to {most}, not {start_words!r}")
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
        """``in_flight`` has the bursts whose words are to come, ``waiting`` the payloads to be announced."""
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
        """Cut a payload into bursts. Their tag has the sums from which its window is made."""
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
        """A payload's first burst claims room for all of its words, and waits until there is enough.

        ``has_room`` takes a claim into account 3 cycles after the burst, so it is low in the two between.
        """
        room = Signal(range(self.depth + 1), init=self.depth)  # unclaimed words of the FIFO
        has_room = Signal(init=1)
        leaves = Signal()  # a word left the FIFO a cycle ago
        go = Signal()
        begins = Signal()
        claimed = Signal()  # a payload began a cycle ago
        claim = Signal(words_bits(self.width))  # its words
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
            claim.eq(Mux(begins, fields["words"], 0)),
            room.eq(room + leaves - claim),
            self.room.eq(room >= self._max_words),
            has_room.eq((room >= self._max_words) & ~begins & ~claimed),
        ]

    def _words(self, m: Module, burst: Any) -> Signal:
        """Rotate words into the FIFO, which has room for them.

        Returns whether the word that enters allows its payload to be sent.
        """
        m.submodules.fifo = fifo = StreamFIFO(shape=self.width, depth=self.depth)
        connect_typed(m, fifo.o, wiring.flipped(self.o))
        axi = self.axi
        ends = Signal()  # the word on ``axi`` is its payload's last
        is_enough = Signal()  # with it the payload may be sent
        allows = Signal()  # the same, of the word that enters the FIFO
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
        """Offer as many payloads as may be sent: a credit each."""
        m.submodules.allowed = allowed = Credits(limit=self.outstanding)
        taken = self.packet.valid & self.packet.ready
        m.d.comb += [
            allowed.give.eq(allows),
            allowed.take.eq(taken),
            self.packet.valid.eq(allowed.ok),
            self.packet.payload.eq(waiting.payload),
            waiting.ready.eq(taken),
        ]
