"""Groups cut out of a compressed stream, one a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import TAG_BITS, Inceptionn
from fanin.hdl.arith.delay import Pipeline, delayed
from fanin.hdl.arith.select import select
from fanin.hdl.codec.inceptionn.shapes import (
    BURST_BITS,
    LENGTH_BITS,
    SLOTS,
    burst_bytes,
    count_bits,
    group_layout,
    table_stages,
)
from fanin.hdl.codec.inceptionn.slot_memory import slot_memory
from fanin.hdl.codec.inceptionn.starts import StartTable
from fanin.hdl.codec.inceptionn.stepper import GroupStepper
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream

HELD = 8  # bursts that are held before ``i`` is not ready any more


class GroupCutter(wiring.Component):
    """Cut the groups of compressed frames apart.

    Where a group begins follows from the tags of the one before, within a cycle: a table says for every byte of
    a burst where a group that begins there ends, so that one multiplexer steps from group to group. Then the
    group's bytes are fetched and shifted to their places.

    A frame of n bytes, decompressed, has ceil(n / (4 · ``group``)) groups. A group whose bytes are not all in
    the frame, and every one after it, is missing; bytes after the last group are dropped.

    Members
    -------
    ``length`` : In, stream(32)
        Bytes of a frame when decompressed, at least 1; one for each frame.
    ``i`` : In, packet stream of 32 · ``group`` bits
        ``ready`` comes from a register.
    ``o`` : Out, stream of :func:`~fanin.hdl.codec.inceptionn.shapes.group_layout`
        ``ready`` enables the registers that lead there from the stepper.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    From the burst in which a group begins, with the next one a cycle later or the frame's end in it, to
    ``o``: 6 cycles (``group`` 16: 7), and one more for a group that reaches into a third burst. One group
    a cycle.

    Source
    ------
    docs/systems/codec.md; INCEPTIONN, section VI-A and figure 10 (burst buffer and tag decoder).
    """

    def __init__(self, *, group: int = 8):
        self.group = group
        self.max_bytes = Inceptionn(group=group).max_group_bytes
        self.size = burst_bytes(group)
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "i": In(packet_stream(8 * self.size)),
                "o": Out(stream.Signature(group_layout(group))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A burst is stored, and goes to the table. In the table's rows the stepper finds groups to cut out."""
        m = Module()
        m.submodules.table = table = StartTable(group=self.group)
        m.submodules.stepper = stepper = GroupStepper(group=self.group)
        connect_typed(m, wiring.flipped(self.length), stepper.length)
        connect_typed(m, table.frame_end, stepper.frame_end)
        taken = Signal(BURST_BITS)  # bursts that were taken, so the number of the one on ``i``
        room = Signal(init=1)
        write = Signal()
        m.d.comb += [
            write.eq(self.i.valid & room),
            self.i.ready.eq(room),
            table.i.valid.eq(write),
            table.i.p.eq(self.i.p),
            stepper.row.eq(table.row),
            # as late as the table's ``frame_end``, which must not come after it
            stepper.arrived.eq(
                delayed(m, taken, table_stages(self.group), name="arrived", reset_less=False)[-1]
            ),
        ]
        # Two more bursts are taken before ``room`` falls, so 11 are held at the most. 14 and 15 are -2 and -1:
        # the oldest burst that is needed may be one that has not come.
        held = (taken - stepper.oldest)[:BURST_BITS]
        m.d.sync += [taken.eq(taken + write), room.eq((held < HELD) | (held >= SLOTS - 2))]

        begin = stepper.o.p.begin
        window = self._bursts(m, write, taken, begin.burst)
        self._cut(m, stepper.o, window, self._low_bytes(m, table, begin.burst))
        return m

    def _bursts(self, m: Module, write: Value, taken: Value, first: Value) -> Value:
        """Three bursts in a row, of the last one the bytes that a group can reach; from a memory for each."""
        sizes = [self.size, self.size, self.max_bytes - 1 - self.size]
        word = self.i.p.data
        return Cat(
            slot_memory(m, f"burst{n}", write=write, slot=taken, word=word[: 8 * size], read=first + n)
            for n, size in enumerate(sizes)
        )

    def _low_bytes(self, m: Module, table: StartTable, burst: Value) -> Value:
        """The table's ``low_bytes`` of a burst: a group's are needed when it is cut out, two cycles later."""
        number = Signal(BURST_BITS)  # of the burst whose row comes next
        m.d.sync += number.eq(number + table.row.valid)
        return slot_memory(
            m, "low_bytes", write=table.row.valid, slot=number, word=table.low_bytes.as_value(), read=burst
        )

    def _cut(self, m: Module, located: Any, window: Value, low_bytes: Value) -> None:
        """Shift the group's first byte down to bit 0: in one cycle by quarters of a burst, then by the rest."""
        pipeline = Pipeline(m, self.o.ready)
        register = pipeline.register
        offset = located.p.begin.offset
        rest, quarter = offset[:-2], offset[-2:]
        step = self.size // 4  # bytes of a quarter
        coarse = register(_from(window, quarter, 8 * step, 8 * (self.max_bytes + step - 1)), name="coarse")
        width = count_bits(self.group)
        low_coarse = register(_from(low_bytes, quarter, width * step, width * step), name="low_coarse")
        rest = register(rest, name="rest")
        values = _from(coarse, rest, 8, 8 * self.max_bytes)
        missing = register(located.p.missing, name="missing")
        tags = TAG_BITS * self.group
        fields = {
            "tags": Mux(missing, 0, values[:tags]),
            "low_bytes": _from(low_coarse, rest, width, width),
            "data": values[tags:],
            "tail": register(located.p.tail, name="tail"),
            "last": register(located.p.last, name="last"),
            "missing": missing,
        }
        m.d.comb += [
            getattr(self.o.p, name).eq(register(value, name=f"o_{name}")) for name, value in fields.items()
        ]
        m.d.comb += [
            located.ready.eq(self.o.ready),
            self.o.valid.eq(pipeline.delay(located.valid, 2, name="valid", reset_less=False)),
        ]


def _from(value: Value, index: Value, unit: int, width: int) -> Value:
    """``width`` bits of ``value``, from bit ``index`` · ``unit`` on."""
    return select([value[unit * n :][:width] for n in range(1 << len(index))], index)
