"""Reorder store: FAs come in any order and leave in that of the operations."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
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
        """What comes next is looked up for both ways that this cycle may end, with a step and without."""
        m = Module()
        now = Signal(use_layout(self.slots), init={"index": 0, "parity": self.first_round & 1})
        behind = Signal.like(now)
        step, stepped, moved = Signal(), Signal(), Signal()
        at = Signal.like(now)
        m.d.comb += [at.eq(Mux(step, behind, now)), step.eq(self.o.valid & self.o.ready)]
        m.d.sync += [now.eq(at), stepped.eq(step)]
        # A register one use ahead of ``now``, by itself: the sum waits for no ``step``.
        with m.If(step):
            m.d.sync += [
                moved.eq(1),
                behind.index.eq((behind.index + 1) & self.mask),
                behind.parity.eq(behind.parity ^ (behind.index == self.mask)),
            ]
        with m.Elif(~moved):  # the mask may still change
            m.d.sync += [behind.index.eq(self.mask[0]), behind.parity.eq(now.parity ^ ~self.mask[0])]

        arrived = self._parities(m, now, behind)
        # By hand, for both addresses at once: a port's own comparison would stand behind their choice.
        hits, parity, live = Signal(2), Signal(), Signal()
        m.d.sync += [
            live.eq(~self.clear.en),
            hits.eq(Cat(self.write.en & (self.write.use.index == use.index) for use in (now, behind))),
            parity.eq(self.write.use.parity),
        ]
        hit = Mux(stepped, hits[1], hits[0])
        found = Mux(hit, parity, Mux(stepped, arrived[1], arrived[0]))
        m.d.comb += [
            self.o.valid.eq(live & (found == now.parity)),
            self.o.payload.as_value().eq(self._values(m, at.index, hit)),
        ]
        return m

    def _parities(self, m: Module, *uses: Any) -> list[Any]:
        """For each use, a cycle later: the parity of the last FA in its slot, of this round or the last."""
        blank = (self.first_round - 1) & 1
        m.submodules.parities = memory = Memory(shape=1, depth=self.slots, init=[blank] * self.slots)
        port = memory.write_port()
        m.d.comb += [
            port.en.eq(self.write.en | self.clear.en),
            port.addr.eq(Mux(self.clear.en, self.clear.index, self.write.use.index)),
            port.data.eq(Mux(self.clear.en, blank, self.write.use.parity)),
        ]
        reads = [memory.read_port() for _ in uses]
        m.d.comb += [read.addr.eq(use.index) for read, use in zip(reads, uses, strict=True)]
        return [read.data for read in reads]

    def _values(self, m: Module, index: Any, hit: Any) -> Any:
        """The FA in a slot, or with ``hit`` the one that was written a cycle ago."""
        m.submodules.store = store = Memory(shape=values_layout(self.values), depth=self.slots, init=[])
        port, read = store.write_port(), store.read_port()
        passing = Signal(values_layout(self.values), reset_less=True)
        m.d.comb += [
            port.en.eq(self.write.en),
            port.addr.eq(self.write.use.index),
            port.data.eq(self.write.values),
            read.addr.eq(index),
        ]
        m.d.sync += passing.eq(self.write.values)
        return Mux(hit, passing.as_value(), read.data.as_value())
