"""Store of two frames, one of which is being answered."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.control.headers import PLACE_BITS, SIZE_BITS, WIDTH
from fanin.hdl.stream.packet import kept_bytes, packet_stream
from fanin.wire.control import MAX_FRAME

READ_LATENCY = 2
_LAST_BEAT, _LAST_LANE = divmod(MAX_FRAME - 1, WIDTH // 8)


class RequestStore(wiring.Component):
    """Store of the frame that is being answered and one that waits; further frames are dropped.

    Members
    -------
    ``i`` : In, packet stream of 32 bits; always ready
        Frames to store.
    ``valid`` : Out, 1
        A frame is ready to be answered.
    ``size`` : Out, 11
        Bytes of the frame.
    ``place`` : In, 9
        Beat to read.
    ``enable`` : In, 1
        Advance the read in this cycle.
    ``word`` : Out, 32
        The beat at ``place``, two enabled cycles later; undefined after the frame's end.
    ``done`` : In, 1
        The frame is answered; the next one, if any, is available a cycle later.
    ``dropped`` : Out, 1
        Pulse: a frame has ended that found no room, or had more than 1,514 bytes.

    Parameters
    ----------
    None.

    Latency
    -------
    1 cycle from a frame's last beat to ``valid``; one beat a cycle.

    Source
    ------
    docs/systems/boards.md, "The network's other services".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(packet_stream(WIDTH)),
                "valid": Out(1),
                "size": Out(SIZE_BITS),
                "place": In(PLACE_BITS),
                "enable": In(1),
                "word": Out(WIDTH),
                "done": In(1),
                "dropped": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Use one memory for both frames, with a register after its slow output."""
        m = Module()
        m.submodules.storage = storage = Memory(shape=WIDTH, depth=2 << PLACE_BITS, init=[])
        write, read = storage.write_port(), storage.read_port()
        full = Signal(2)
        sizes = Signal(data.ArrayLayout(SIZE_BITS, 2), reset_less=True)
        write_slot = Signal()
        read_slot = Signal()
        m.d.comb += [
            read.addr.eq(Cat(self.place, read_slot)),
            # A beat is never read while it is written. Stated here, this avoids logic for the case.
            read.en.eq(self.enable & ~(write.en & (write_slot == read_slot))),
            self.valid.eq(full.bit_select(read_slot, 1)),
            self.size.eq(sizes[read_slot]),
        ]
        with m.If(self.enable):
            m.d.sync += self.word.eq(read.data)
        with m.If(self.done):
            m.d.sync += [full.bit_select(read_slot, 1).eq(0), read_slot.eq(~read_slot)]
        self._take(m, write, full, sizes, write_slot)
        return m

    def _take(self, m: Module, write: Any, full: Signal, sizes: Any, write_slot: Signal) -> None:
        """Write beats as they arrive; a frame that starts while its place is occupied is lost."""
        i = self.i
        beat_number = Signal(PLACE_BITS)
        overflowed = Signal()  # the current frame found no room
        past_limit = Signal()
        drops = Signal()
        ends = Signal()
        no_room = full.bit_select(write_slot, 1) | overflowed
        too_long = (beat_number == _LAST_BEAT) & (~i.p.last | i.p.keep[_LAST_LANE + 1]) | past_limit
        m.d.comb += [
            i.ready.eq(1),
            drops.eq(no_room | too_long),
            ends.eq(i.valid & i.p.last),
            write.addr.eq(Cat(beat_number, write_slot)),
            write.data.eq(i.p.data),
            write.en.eq(i.valid & ~no_room),
        ]
        with m.If(i.valid):
            m.d.sync += [overflowed.eq(no_room & ~i.p.last), past_limit.eq(too_long & ~i.p.last)]
            with m.If(i.p.last):
                m.d.sync += beat_number.eq(0)
            with m.Elif(~too_long):
                m.d.sync += beat_number.eq(beat_number + 1)
        m.d.sync += self.dropped.eq(ends & drops)
        with m.If(ends & ~drops):
            m.d.sync += [
                sizes[write_slot].eq(Cat(Const(0, 2), beat_number) + kept_bytes(i.p.keep)),
                full.bit_select(write_slot, 1).eq(1),
                write_slot.eq(~write_slot),
            ]
