"""Reorder store: FAs come in any order and leave in that of the operations."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.headers import values_layout
from fanin.hdl.aggregation.slots import (
    check_first_round,
    check_slots,
    clear_layout,
    index_bits,
    use_layout,
    walk_uses,
)
from fanin.wire.aggregation import DEFAULT_VALUES


class ReorderStore(wiring.Component):
    """Keep the FA of every slot, and hand each on once, in the order of the operations.

    Whoever writes must not write a slot whose FA was not delivered yet. Clearing withdraws what ``o`` holds.

    Members
    -------
    ``mask`` : In, bits of a slot index
        The job's slots, less 1.
    ``clear`` : In, ``en`` and ``index``
        Forget a slot.
    ``ahead`` : In, slot use
        Of the FA that may be written in the next cycle.
    ``write`` : In, ``en`` and ``values``
        An FA; it belongs to what ``ahead`` was a cycle ago.
    ``o`` : Out, stream of ``values`` signed 32-bit numbers

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 32768
    ``values`` : int, 1 to 256
    ``first_round`` : int, 1 to 2^32 − 1

    Latency
    -------
    0 cycles from ``write`` to ``o`` when it is the next in order; one FA a cycle, in order or not.

    Source
    ------
    docs/systems/aggregation.md, "Worker".
    """

    def __init__(self, *, slots: int, values: int = DEFAULT_VALUES, first_round: int = 1):
        check_slots(slots)
        check_first_round(first_round)
        self.slots = slots
        self.values = values
        self.first_round = first_round
        write = {"en": 1, "values": values_layout(values)}
        super().__init__(
            {
                "mask": In(index_bits(slots)),
                "clear": In(clear_layout(slots)),
                "ahead": In(use_layout(slots)),
                "write": In(data.StructLayout(write)),
                "o": Out(stream.Signature(values_layout(values))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The next FA is looked up for both ways that this cycle may end: with a ``step`` and without.

        Index 0 of a pair is about the ``current`` use, index 1 about the ``following`` one; ``stepped``
        chooses a cycle later. An FA counts as present if it is in memory (``arrived``), was written while
        memory was read (``stored``), or is being written now (``arriving``).
        """
        m = Module()
        step = Signal()
        stepped = Signal()
        current, following = walk_uses(
            m, slots=self.slots, first_round=self.first_round, mask=self.mask, step=step
        )
        m.d.comb += step.eq(self.o.valid & self.o.ready)
        m.d.sync += stepped.eq(step)

        use = Signal.like(self.ahead)
        m.d.sync += use.eq(self.ahead)
        arrived = self._parities(m, use, current, following)
        # A transparent port would compare after the choice between the two, in the same cycle.
        names = {"current": current, "following": following}
        arriving, stored, right = (
            [Signal(name=f"{flag}_{name}") for name in names] for flag in ("arriving", "stored", "right")
        )
        live = Signal()
        m.d.sync += live.eq(~self.clear.en)
        for way, next_ in enumerate(names.values()):
            m.d.sync += [
                arriving[way].eq(self.ahead == next_),
                stored[way].eq((use.index == next_.index) & self.write.en),
                right[way].eq(use.parity == next_.parity),
            ]
        present = [Mux(stored[way], right[way], arrived[way] == current.parity) for way in range(len(names))]
        direct = self.write.en & Mux(stepped, arriving[1], arriving[0])
        last = Mux(stepped, stored[1], stored[0])
        address = Mux(step, following.index, current.index)
        m.d.comb += [
            self.o.valid.eq(live & (direct | Mux(stepped, present[1], present[0]))),
            self.o.payload.as_value().eq(self._values(m, address, use, direct, last)),
        ]
        return m

    def _parities(self, m: Module, use: Any, *nexts: Any) -> list[Any]:
        """For each of ``nexts``, a cycle later: the parity of the last FA in its slot."""
        blank = (self.first_round - 1) & 1
        m.submodules.parities = memory = Memory(shape=1, depth=self.slots, init=[blank] * self.slots)
        port = memory.write_port()
        m.d.comb += [
            port.en.eq(self.write.en | self.clear.en),
            port.addr.eq(Mux(self.clear.en, self.clear.index, use.index)),
            port.data.eq(Mux(self.clear.en, blank, use.parity)),
        ]
        reads = [memory.read_port() for _ in nexts]
        m.d.comb += [read.addr.eq(next_.index) for read, next_ in zip(reads, nexts, strict=True)]
        return [read.data for read in reads]

    def _values(self, m: Module, index: Any, use: Any, direct: Any, last: Any) -> Any:
        """The FA in a slot, or the one that is being written now, or was a cycle ago."""
        m.submodules.store = store = Memory(shape=values_layout(self.values), depth=self.slots, init=[])
        port, read = store.write_port(), store.read_port()
        passing = Signal(values_layout(self.values), reset_less=True)
        m.d.comb += [
            port.en.eq(self.write.en),
            port.addr.eq(use.index),
            port.data.eq(self.write.values),
            read.addr.eq(index),
        ]
        m.d.sync += passing.eq(self.write.values)
        older = Mux(last, passing.as_value(), read.data.as_value())
        return Mux(direct, self.write.values.as_value(), older)
