"""Reorder store of full activations (FAs): they arrive in any order and leave in the order of operations."""

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
from fanin.hdl.memory import BLOCK_RAM, NEVER_READ_AS_WRITTEN
from fanin.wire.aggregation import DEFAULT_VALUES


class ReorderStore(wiring.Component):
    """Store with one FA per slot, which hands each FA over once, in the order of the operations.

    A slot must not be written before its previous FA has left on ``o``. Clearing withdraws the FA on ``o``, so
    ``o.ready`` must be high in the first cycle of a clearing.

    Members
    -------
    ``mask`` : In, bits of a slot index
        The job's slots minus 1.
    ``clear`` : In, ``en`` and ``index``
        Clear a slot.
    ``enable`` : In, 1
        FAs may leave. From 1 cycle after its fall, only an FA that already waits on ``o`` is handed over.
    ``ahead`` : In, slot use
        Slot use of the FA that may be written in the next cycle.
    ``write`` : In, ``en`` and ``values``
        An FA; its slot use is the value of ``ahead`` a cycle ago.
    ``o`` : Out, stream of ``values`` signed 32-bit numbers
        FAs in order.

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 65536
        Maximum number of slots of a job.
    ``values`` : int, 1 to 256
        Values of an FA.
    ``first_round`` : int, 1 to 2^32 − 1
        Round of operation 0; 1 except in tests.
    ``block_ram`` : bool
        Keep FAs in block RAM, even for few slots. False by default.

    Latency
    -------
    0 cycles from ``write`` to ``o`` when it is the next in order; one FA a cycle, in order or not.

    Source
    ------
    docs/systems/aggregation.md, "Worker".
    """

    def __init__(
        self,
        *,
        slots: int,
        values: int = DEFAULT_VALUES,
        first_round: int = 1,
        block_ram: bool = False,
    ):
        check_slots(slots)
        check_first_round(first_round)
        self.slots = slots
        self.values = values
        self.first_round = first_round
        self.block_ram = block_ram
        write = {"en": 1, "values": values_layout(values)}
        super().__init__(
            {
                "mask": In(index_bits(slots)),
                "clear": In(clear_layout(slots)),
                "enable": In(1),
                "ahead": In(use_layout(slots)),
                "write": In(data.StructLayout(write)),
                "o": Out(stream.Signature(values_layout(values))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Look up the next FA for both outcomes of this cycle, with a ``step`` and without.

        Index 0 of a pair is for the ``current`` use, index 1 for the next one; a cycle later, ``stepped``
        selects one of the two. An FA is present if the last FA in its slot has the use's parity. Two kinds of
        FAs are not yet in the output of the parity memory:

        - an FA that was written in the cycle of the read (``just_written``, to that slot; ``same_parity``);
        - an FA that is written now (``arrives_now``, for that use).
        """
        m = Module()
        step = Signal()
        stepped = Signal()
        current, next_use = walk_uses(
            m, slots=self.slots, first_round=self.first_round, mask=self.mask, step=step
        )
        m.d.comb += step.eq(self.o.valid & self.o.ready)
        m.d.sync += stepped.eq(step)

        use = Signal.like(self.ahead)
        m.d.sync += use.eq(self.ahead)
        parities = self._parities(m, use, current, next_use)
        # A transparent port would compare after the selection between the two, in the same cycle.
        names = {"current": current, "following": next_use}
        arrives_now, just_written, same_parity = (
            [Signal(name=f"{flag}_{name}") for name in names]
            for flag in ("arrives_now", "just_written", "same_parity")
        )
        live = Signal()  # an FA that waits when ``enable`` falls stays valid, as streams require
        fa_waits = self.o.valid & ~self.o.ready
        m.d.sync += live.eq(~self.clear.en & (self.enable | fa_waits))
        for outcome, either_use in enumerate(names.values()):
            m.d.sync += [
                arrives_now[outcome].eq(self.ahead == either_use),
                just_written[outcome].eq((use.index == either_use.index) & self.write.en),
                same_parity[outcome].eq(use.parity == either_use.parity),
            ]
        present = [
            Mux(just_written[outcome], same_parity[outcome], parities[outcome] == current.parity)
            for outcome in range(len(names))
        ]
        direct = self.write.en & Mux(stepped, arrives_now[1], arrives_now[0])
        bypass = Mux(stepped, just_written[1], just_written[0])
        address = Mux(step, next_use.index, current.index)
        m.d.comb += [
            self.o.valid.eq(live & (direct | Mux(stepped, present[1], present[0]))),
            self.o.payload.as_value().eq(self._values(m, address, use, direct, bypass)),
        ]
        return m

    def _parities(self, m: Module, use: Any, *lookups: Any) -> list[Any]:
        """Return, a cycle later, the parity of the last FA in the slot of each use in ``lookups``."""
        initial_parity = (self.first_round - 1) & 1
        m.submodules.parities = memory = Memory(shape=1, depth=self.slots, init=[initial_parity] * self.slots)
        port = memory.write_port()
        m.d.comb += [
            port.en.eq(self.write.en | self.clear.en),
            port.addr.eq(Mux(self.clear.en, self.clear.index, use.index)),
            port.data.eq(Mux(self.clear.en, initial_parity, use.parity)),
        ]
        reads = [memory.read_port() for _ in lookups]
        m.d.comb += [read.addr.eq(lookup.index) for read, lookup in zip(reads, lookups, strict=True)]
        return [read.data for read in reads]

    def _values(self, m: Module, index: Any, use: Any, direct: Any, bypass: Any) -> Any:
        """Return a slot's FA, a cycle after ``index``.

        If ``direct``, it is the FA written now; else if ``bypass``, the FA written while memory was read; else
        the memory's.
        """
        m.submodules.store = store = Memory(
            shape=values_layout(self.values),
            depth=self.slots,
            init=[],
            attrs=NEVER_READ_AS_WRITTEN | (BLOCK_RAM if self.block_ram else {}),
        )
        port, read = store.write_port(), store.read_port()
        just_written = Signal(values_layout(self.values), reset_less=True)
        m.d.comb += [
            port.en.eq(self.write.en),
            port.addr.eq(use.index),
            port.data.eq(self.write.values),
            read.addr.eq(index),
        ]
        m.d.sync += just_written.eq(self.write.values)
        stored_fa = Mux(bypass, just_written.as_value(), read.data.as_value())
        return Mux(direct, self.write.values.as_value(), stored_fa)
