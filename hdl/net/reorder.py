"""Reorder store: FAs come in any order and leave in that of the operations."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.headers import values_layout
from fanin.hdl.net.slots import (
    check_first_round,
    check_slots,
    clear_layout,
    index_bits,
    use_layout,
)
from fanin.wire import DEFAULT_VALUES


class ReorderStore(wiring.Component):
    """Keep the FA of every slot, and hand each on once, in the order of the operations.

    Whoever writes must not write a slot whose FA was not delivered yet. Clearing withdraws what ``o`` holds.

    Members
    -------
    ``mask`` : In, bits of a slot index
        N − 1.
    ``clear`` : In, ``en`` and ``index``
        Forget a slot.
    ``write`` : In, ``en``, ``use`` and ``values``
        An FA and the use of the slot that it belongs to.
    ``o`` : Out, stream of ``values`` signed 32-bit numbers

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 32768
    ``values`` : int, 1 to 256
    ``first_round`` : int, 1 to 2^32 − 1

    Latency
    -------
    1 cycle from ``write`` to ``o`` when it is the next in order; one FA a cycle, in order or not.

    Source
    ------
    DESIGN section 4, "Worker".
    """

    def __init__(self, *, slots: int, values: int = DEFAULT_VALUES, first_round: int = 1):
        check_slots(slots)
        check_first_round(first_round)
        self.slots = slots
        self.values = values
        self.first_round = first_round
        write = {"en": 1, "use": use_layout(slots), "values": values_layout(values)}
        super().__init__(
            {
                "mask": In(index_bits(slots)),
                "clear": In(clear_layout(slots)),
                "write": In(data.StructLayout(write)),
                "o": Out(stream.Signature(values_layout(values))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The read port looks at the next operation's slot all the time, and what is just written goes by.

        The parity beside the values tells this round's FA from the last one's.
        """
        m = Module()
        word = data.StructLayout({"values": values_layout(self.values), "parity": 1})
        blank = (self.first_round - 1) & 1
        m.submodules.store = store = Memory(shape=word, depth=self.slots, init=[{"parity": blank}] * self.slots)
        port, read = store.write_port(), store.read_port()
        now = Signal(use_layout(self.slots), init={"index": 0, "parity": self.first_round & 1})
        behind = Signal.like(now)
        step, moved = Signal(), Signal()
        at = Signal.like(now)
        m.d.comb += [
            at.eq(Mux(step, behind, now)),
            step.eq(self.o.valid & self.o.ready),
            read.addr.eq(at.index),
            port.en.eq(self.write.en | self.clear.en),
            port.addr.eq(Mux(self.clear.en, self.clear.index, self.write.use.index)),
            port.data.values.eq(self.write.values),
            port.data.parity.eq(Mux(self.clear.en, blank, self.write.use.parity)),
        ]
        # A register one use ahead of ``now``, by itself: the sum waits for no ``step``.
        m.d.sync += now.eq(at)
        with m.If(step):
            m.d.sync += [
                moved.eq(1),
                behind.index.eq((behind.index + 1) & self.mask),
                behind.parity.eq(behind.parity ^ (behind.index == self.mask)),
            ]
        with m.Elif(~moved):  # the mask may still change
            m.d.sync += [behind.index.eq(self.mask[0]), behind.parity.eq(now.parity ^ ~self.mask[0])]

        # By hand, for both addresses at once: the port's own comparison would stand behind their choice.
        written, hit, live = Signal(), Signal(), Signal()
        passing = Signal(word, reset_less=True)
        index = self.write.use.index
        m.d.sync += [
            written.eq(self.write.en),
            hit.eq(Mux(step, index == behind.index, index == now.index)),
            passing.eq(port.data),
            live.eq(~self.clear.en),
        ]
        head = Signal(word)
        m.d.comb += [
            head.eq(Mux(written & hit, passing, read.data)),
            self.o.valid.eq(live & (head.parity == now.parity)),
            self.o.payload.eq(head.values),
        ]
        return m
