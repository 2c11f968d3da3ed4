"""Hub that shares one MAC among several connections."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.hdl.stream.round_robin import lowest_set
from fanin.wire.connection import CONNECTION, CONNECTION_LINK
from fanin.wire.ethernet import Encap
from fanin.wire.fields import field_bits

NUMBER_BITS = field_bits(CONNECTION, "connection")
_NUMBER_AT = 1  # byte of the header with the connection's number, after version and kind


class MacHub(wiring.Component):
    """Hub that shares one MAC among several connections, and delivers received frames by connection.

    When a frame ends, the hub selects the next among frames that wait at other connections: control frames
    first, then connections in turn. A received frame goes to the connection with the frame's number, which
    checks it.

    Members
    -------
    ``tx`` : In, array of packet streams of ``data_width`` bits
        Frames from each connection; valid in every cycle of a frame.
    ``control`` : In, one bit for each connection
        The frame that waits on the connection's ``tx`` is a control frame.
    ``rx`` : Out, array of packet streams of ``data_width`` bits with ``error``
        Frames to each connection, which must always be ready.
    ``numbers`` : In, array of 8 bits
        Number of each connection.
    ``mac_tx`` : Out, packet stream of ``data_width`` bits
        Frames to the MAC; no pauses within a frame.
    ``mac_rx`` : In, packet stream of ``data_width`` bits with ``error``
        Frames from the MAC. Always ready, since a MAC does not wait.
    ``foreign`` : Out, 1
        Pulse: a frame has ended that has the number of no connection, or ends before its number.

    Parameters
    ----------
    ``connections`` : int, at least 1
        Number of connections.
    ``data_width`` : int, bits, a power of two from 32 to 512
        Bits of a beat; 512 by default.
    ``encap`` : Encap
        Encapsulation: raw Ethernet (the default) or UDP.

    Latency
    -------
    - From ``tx`` to ``mac_tx`` with no frame in flight: 1 cycle, and 1 more if another connection sent last.
    - A beat leaves in every cycle while ``tx`` has one.
    - From the beat with the connection's number to the frame's first beat on ``rx``: 1 cycle.

    Source
    ------
    docs/systems/link.md, "A connection".
    """

    def __init__(self, *, connections: int, data_width: int = 512, encap: Encap = Encap.L2):
        if connections < 1:
            raise ValueError(f"connections must be at least 1, not {connections!r}")
        self.connections = connections
        self.data_width = data_width
        self.encap = encap
        self.number_at = 8 * (CONNECTION_LINK.header_at(encap) + _NUMBER_AT)  # bits
        super().__init__(
            {
                "tx": In(packet_stream(data_width)).array(connections),
                "control": In(connections),
                "rx": Out(packet_stream(data_width, error=True)).array(connections),
                "numbers": In(data.ArrayLayout(NUMBER_BITS, connections)),
                "mac_tx": Out(packet_stream(data_width)),
                "mac_rx": In(packet_stream(data_width, error=True)),
                "foreign": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build two independent directions."""
        m = Module()
        self._transmit(m)
        self._receive(m)
        return m

    def _transmit(self, m: Module) -> None:
        """Send the frames of connection ``index``; select another when its frame ends, or while it has none."""
        o = self.mac_tx
        index = Signal(range(self.connections))
        in_frame = Signal()  # a frame has started and not ended
        free = Signal()
        beat = Signal(packet_layout(self.data_width))
        valid = Signal()
        with m.Switch(index):
            for n, tx in enumerate(self.tx):
                with m.Case(n):
                    m.d.comb += [valid.eq(tx.valid), beat.eq(tx.p), tx.ready.eq(free)]
        m.d.comb += free.eq(~o.valid | o.ready)
        with m.If(free):
            m.d.sync += [o.valid.eq(valid), o.p.eq(beat)]
        moves = valid & free
        with m.If(moves):
            m.d.sync += in_frame.eq(~beat.last)
        has_next, next_index = self._next(m, index)
        with m.If(has_next & Mux(moves, beat.last, ~valid & ~in_frame)):
            m.d.sync += index.eq(next_index)

    def _next(self, m: Module, index: Signal) -> tuple[Value, Value]:
        """Return whether a connection other than ``index`` has a frame, and the connection that is next.

        The order is: control frames of connections after ``index``, control frames of the other connections,
        then frames with payload in the same order of connections.
        """
        places = 1 << (self.connections - 1).bit_length()
        waiting = Signal(places)
        after_index = Cat(index < n for n in range(places))
        m.d.comb += waiting.eq(Cat(tx.valid & (index != n) for n, tx in enumerate(self.tx)))
        control = waiting & self.control
        kinds = (control & after_index, control, waiting & after_index, waiting)
        has_next, next_index = Const(0), Const(0)
        for requests in reversed(kinds):
            any_of, lowest = lowest_set(requests[:places])
            has_next, next_index = any_of | has_next, Mux(any_of, lowest, next_index)
        return has_next, next_index

    def _receive(self, m: Module) -> None:
        """Hold beats until the beat with the number has arrived, or the frame has ended."""
        last_place = self.number_at // self.data_width
        number_start = self.number_at % self.data_width
        depth = last_place + 2  # beats arrive while the first waits until a cycle after the number
        m.submodules.beats = beats = StreamFIFO(shape=packet_layout(self.data_width, error=True), depth=depth)
        m.submodules.targets = targets = StreamFIFO(shape=range(self.connections + 1), depth=depth)
        connect_typed(m, flipped(self.mac_rx), beats.i)
        i, o = self.mac_rx, beats.o
        place = Signal(range(last_place + 2))  # index of the beat in its frame; stops after the number's beat
        with m.If(i.valid):
            m.d.sync += place.eq(Mux(i.p.last, 0, Mux(place > last_place, place, place + 1)))
        number = i.p.data[number_start : number_start + NUMBER_BITS]
        has_number = (place == last_place) & i.p.keep[number_start // 8]
        target = Const(self.connections)
        for n in reversed(range(self.connections)):
            target = Mux(has_number & (number == self.numbers[n]), n, target)
        m.d.comb += [
            targets.i.valid.eq(i.valid & ((place == last_place) | (i.p.last & (place < last_place)))),
            targets.i.p.eq(target),
            o.ready.eq(targets.o.valid),
            targets.o.ready.eq(o.valid & o.p.last),
        ]
        for n, rx in enumerate(self.rx):
            m.d.comb += [rx.valid.eq(o.valid & targets.o.valid & (targets.o.p == n)), rx.p.eq(o.p)]
        leaves = o.valid & o.ready & o.p.last
        m.d.sync += self.foreign.eq(leaves & (targets.o.p == self.connections))
