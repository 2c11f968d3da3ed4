"""The next packet of a queue pair."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.carry import sum_with_carry
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, Settings, bytes_of, write_layout
from fanin.hdl.rdma.shapes import SIZE_BITS, Headers, fetch_layout, header_lane
from fanin.rdma import MAX_RETRIES, MAX_WINDOW_BITS, RdmaConfig
from fanin.wire.rdma import PSN_BITS, Opcode

FLIGHT_BITS = MAX_WINDOW_BITS + 1


def row_layout(config: RdmaConfig) -> data.StructLayout:
    """State of a sender. Pointers into its ring of descriptors have a bit more, to tell full from empty."""
    pointer = config.descriptors.bit_length()
    return data.StructLayout(
        {
            "enable": 1,
            "head": pointer,  # the oldest descriptor that is not complete
            "send": pointer,  # that of the next packet to send
            "tail": pointer,  # where the next one will be put
            "done": PSN_BITS,  # packets acknowledged since the head's first
            "oldest": PSN_BITS,  # packet that is not acknowledged
            "flight": FLIGHT_BITS,  # packets sent since
            "number": PSN_BITS,  # packets of its message that were sent
            "attempts": MAX_RETRIES.bit_length(),  # without progress
        }
    )


def descriptor_layout(config: RdmaConfig) -> data.StructLayout:
    """A descriptor in the ring; ``last_number`` is that of its message's last packet, from 0."""
    members = {name: shape for name, shape in write_layout(config).members.items() if name != "index"}
    return data.StructLayout(members | {"last_number": PSN_BITS})


class PacketCut(wiring.Component):
    """Cut off the next packet of a message. An ACK is asked for at its end, and often enough for the window.

    Members
    -------
    ``row`` : In, :func:`row_layout`
    ``offset`` : In, 32
        Bytes of the message that were sent.
    ``write`` : In, :func:`descriptor_layout`
        The message.
    ``settings`` : In, Settings
    ``window`` : In, 11
        Packets that may be in flight, but one.
    ``ends`` : Out, 1
        The packet is its message's last one.
    ``after`` : Out, ``send``, ``number`` and ``flight``
        What the row has behind the packet.
    ``headers`` : Out, Headers
    ``fetch`` : Out, :func:`~fanin.hdl.rdma.shapes.fetch_layout`
    ``some`` : Out, 1
        There is something to fetch.
    ``closes`` : Out, 1
        It fills the window.

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    1 cycle to ``ends`` and ``after``, 2 cycles to all else; the inputs stand still in the first of them.

    Source
    ------
    docs/systems/rdma.md, "Requester".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        row = row_layout(config)
        after = data.StructLayout({name: row[name].shape for name in ("send", "number", "flight")})
        super().__init__(
            {
                "row": In(row),
                "offset": In(LENGTH_BITS),
                "write": In(descriptor_layout(config)),
                "settings": In(Settings),
                "window": In(FLIGHT_BITS),
                "ends": Out(1),
                "after": Out(after),
                "headers": Out(Headers),
                "fetch": Out(fetch_layout(width=config.width, address_width=config.address_width)),
                "some": Out(1),
                "closes": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """All sums in every cycle; a packet beside the one that is handed on is nobody's."""
        m = Module()
        row, write, settings, after = self.row, self.write, self.settings, self.after
        psn = Signal(PSN_BITS)
        rest = Signal(SIZE_BITS)  # bytes of the message, if this is its last packet
        next_send = Signal.like(row.send)
        next_number = Signal.like(row.number)
        begins = Signal()
        asks = Signal()
        m.d.sync += [
            psn.eq(row.oldest + row.flight),
            rest.eq(write.length[:SIZE_BITS] - self.offset[:SIZE_BITS]),
            next_send.eq(row.send + 1),
            next_number.eq(row.number + 1),
            after.flight.eq(row.flight + 1),
            begins.eq(~row.number.any()),
            asks.eq(~(psn & self.window >> 2).any()),
            self.ends.eq(row.number == write.last_number),
            self.some.eq(write.length.any()),
            self.closes.eq(row.flight == self.window),
        ]
        m.d.comb += [
            after.send.eq(Mux(self.ends, next_send, row.send)),
            after.number.eq(Mux(self.ends, 0, next_number)),
            self.headers.peer.eq(settings.peer),
            self.headers.opcode.eq(self._opcode(begins)),
            self.headers.psn.eq(psn),
            self.headers.acknowledge.eq(self.ends | asks),
            self.headers.address.eq(write.remote),
            self.headers.size.eq(Mux(self.ends, rest, bytes_of(Const(1), settings.mtu))),
            *(self.headers[name].eq(write[name]) for name in ("rkey", "length", "immediate")),
            self.fetch.address.eq(self._address(m)),
            self.fetch.size.eq(self.headers.size),
            self.fetch.lane.eq(header_lane(self.config.width, self.headers.opcode)),
        ]
        return m

    def _opcode(self, begins: Value) -> Value:
        immediate = self.write.with_immediate
        last = Mux(immediate, Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_LAST)
        only = Mux(immediate, Opcode.WRITE_ONLY_IMMEDIATE, Opcode.WRITE_ONLY)
        return Mux(begins, Mux(self.ends, only, Opcode.WRITE_FIRST), Mux(self.ends, last, Opcode.WRITE_MIDDLE))

    def _address(self, m: Module) -> Value:
        """Where the payload begins: the lower half, then the upper one and a carry, in one addition."""
        half = self.config.address_width // 2
        low = Signal(half + 1)
        high = Signal(self.config.address_width - half)
        start = self.write.local
        m.d.sync += [
            low.eq(start[:half] + self.offset[:half]),
            high.eq(sum_with_carry(start[half:], self.offset[half:], low[half])),
        ]
        return Cat(low[:half], high)
