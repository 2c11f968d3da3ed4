"""Cutter for the next packet of a queue pair."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.queue_pair import LENGTH_BITS, Settings, bytes_of
from fanin.hdl.rdma.sender_tables import FLIGHT_BITS, descriptor_layout, row_layout
from fanin.hdl.rdma.shapes import SIZE_BITS, Headers, fetch_layout, header_lane
from fanin.rdma.facts import RdmaConfig
from fanin.wire.rdma import PSN_BITS, Opcode


class PacketCut(wiring.Component):
    """Cutter of the next packet from a message.

    A packet requests an ACK at the end of its message, and often enough before that the window never stalls.

    Members
    -------
    ``row`` : In, :func:`~fanin.hdl.rdma.sender_tables.row_layout`
        State of the queue pair.
    ``offset`` : In, 32
        Bytes of the message before the packet.
    ``descriptor`` : In, :func:`~fanin.hdl.rdma.sender_tables.descriptor_layout`
        The message.
    ``settings`` : In, Settings
        Settings of the queue pair.
    ``window_mask`` : In, 11
        Window in packets, a power of two, less 1.
    ``next_row`` : Out, ``send``, ``packet_number`` and ``flight``
        These members of the row after the packet is sent.
    ``headers`` : Out, Headers
        Headers of the packet.
    ``fetch`` : Out, :func:`~fanin.hdl.rdma.shapes.fetch_layout`
        Payload of the packet.
    ``has_payload`` : Out, 1
        The packet has a payload to fetch.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of descriptors, and widths.

    Latency
    -------
    The inputs must be constant for 2 cycles. ``next_row`` is valid in the second cycle. The packet is valid in
    that cycle and in the next one, in which ``row`` may have changed.

    Source
    ------
    docs/systems/rdma.md, "Requester".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        row = row_layout(config)
        next_row = data.StructLayout({name: row[name].shape for name in ("send", "packet_number", "flight")})
        super().__init__(
            {
                "row": In(row),
                "offset": In(LENGTH_BITS),
                "descriptor": In(descriptor_layout(config)),
                "settings": In(Settings),
                "window_mask": In(FLIGHT_BITS),
                "next_row": Out(next_row),
                "headers": Out(Headers),
                "fetch": Out(fetch_layout(width=config.width, address_width=config.address_width)),
                "has_payload": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Register sums and comparisons, then select the packet's fields by its position in the message."""
        m = Module()
        row, descriptor, settings, headers = self.row, self.descriptor, self.settings, self.headers
        psn = Signal(PSN_BITS)
        address = Signal(self.config.address_width)
        last_size = Signal(SIZE_BITS)  # bytes of the message from ``offset`` on; valid in its last packet
        is_first = Signal()
        is_last = Signal()
        m.d.sync += [
            psn.eq(row.oldest + row.flight),
            address.eq(descriptor.local + self.offset),
            last_size.eq(descriptor.length[:SIZE_BITS] - self.offset[:SIZE_BITS]),
            is_first.eq(row.packet_number == 0),
            is_last.eq(row.packet_number == descriptor.last_number),
        ]
        asks_for_window = (psn & self.window_mask >> 2) == 0  # once in each quarter of the window
        m.d.comb += [
            self.next_row.send.eq(row.send + is_last),
            self.next_row.packet_number.eq(Mux(is_last, 0, row.packet_number + 1)),
            self.next_row.flight.eq(row.flight + 1),
            headers.peer.eq(settings.peer),
            headers.opcode.eq(_opcode(is_first, is_last, descriptor.with_immediate)),
            headers.psn.eq(psn),
            headers.acknowledge.eq(is_last | asks_for_window),
            headers.address.eq(descriptor.remote),
            headers.size.eq(Mux(is_last, last_size, bytes_of(Const(1), settings.mtu))),
            *(headers[name].eq(descriptor[name]) for name in ("rkey", "length", "immediate")),
            self.fetch.address.eq(address),
            self.fetch.size.eq(headers.size),
            self.fetch.lane.eq(header_lane(self.config.width, headers.opcode)),
            self.has_payload.eq(descriptor.length != 0),
        ]
        return m


def _opcode(is_first: Value, is_last: Value, immediate: Value) -> Value:
    single = Mux(immediate, Opcode.WRITE_ONLY_IMMEDIATE, Opcode.WRITE_ONLY)
    last = Mux(immediate, Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_LAST)
    return Mux(is_first, Mux(is_last, single, Opcode.WRITE_FIRST), Mux(is_last, last, Opcode.WRITE_MIDDLE))
