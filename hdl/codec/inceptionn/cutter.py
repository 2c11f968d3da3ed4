"""Cutter of groups from a compressed stream, one a cycle."""

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

MAX_BURSTS = 8  # bursts held before ``i.ready`` falls


class GroupCutter(wiring.Component):
    """Cutter that separates the groups of compressed frames.

    The begin of a group depends on the tags of the previous group, within one cycle. A table therefore holds,
    for every byte of a burst, the end of a group that begins there, and one multiplexer steps from group to
    group. The group's bytes are then read and shifted to their places.

    A frame of n decompressed bytes has ceil(n / (4 · ``group``)) groups. A group that is not completely in the
    frame is missing, and so is every later group. Bytes after the last group are dropped.

    Members
    -------
    ``length`` : In, stream(32)
        Decompressed bytes of a frame, at least 1; one length for each frame.
    ``i`` : In, packet stream of 32 · ``group`` bits
        Compressed frames. ``ready`` comes from a register.
    ``o`` : Out, stream of :func:`~fanin.hdl.codec.inceptionn.shapes.group_layout`
        Groups. ``ready`` enables the registers between the stepper and ``o``.

    Parameters
    ----------
    ``group`` : int
        Values of a group: 8 or 16. Default 8.

    Latency
    -------
    From the burst in which a group begins to ``o``: 6 cycles (``group`` 16: 7), if the next burst comes a cycle
    later or the frame ends in that burst. One more for a group that extends into a third burst. One group a
    cycle.

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
        """Store each burst and put it through the table; the stepper finds groups by the table's rows."""
        m = Module()
        m.submodules.table = table = StartTable(group=self.group)
        m.submodules.stepper = stepper = GroupStepper(group=self.group)
        connect_typed(m, wiring.flipped(self.length), stepper.length)
        connect_typed(m, table.frame_end, stepper.frame_end)
        burst_number = Signal(BURST_BITS)  # number of bursts taken, and of the burst on ``i``
        has_room = Signal(init=1)
        write = Signal()
        m.d.comb += [
            write.eq(self.i.valid & has_room),
            self.i.ready.eq(has_room),
            table.i.valid.eq(write),
            table.i.p.eq(self.i.p),
            stepper.row.eq(table.row),
            # delayed like the table's ``frame_end``, which must not come later
            stepper.arrived.eq(
                delayed(m, burst_number, table_stages(self.group), name="arrived", reset_less=False)[-1]
            ),
        ]
        # Two more bursts are taken before ``has_room`` falls, so at most 11 are stored. 14 and 15 mean -2 and
        # -1: the oldest burst that is needed may not have arrived.
        stored_bursts = (burst_number - stepper.oldest)[:BURST_BITS]
        m.d.sync += [
            burst_number.eq(burst_number + write),
            has_room.eq((stored_bursts < MAX_BURSTS) | (stored_bursts >= SLOTS - 2)),
        ]

        begin = stepper.o.p.begin
        window = self._bursts(m, write, burst_number, begin.burst)
        self._extract(m, stepper.o, window, self._low_bytes(m, table, begin.burst))
        return m

    def _bursts(self, m: Module, write: Value, burst_number: Value, first: Value) -> Value:
        """Return three consecutive bursts, the last as far as a group can reach, each from its own memory."""
        sizes = [self.size, self.size, self.max_bytes - 1 - self.size]
        word = self.i.p.data
        return Cat(
            slot_memory(m, f"burst{n}", write=write, slot=burst_number, word=word[: 8 * size], read=first + n)
            for n, size in enumerate(sizes)
        )

    def _low_bytes(self, m: Module, table: StartTable, burst: Value) -> Value:
        """Return the table's ``low_bytes`` of a burst, which are needed two cycles later, at the cut."""
        number = Signal(BURST_BITS)  # number of the next row's burst
        m.d.sync += number.eq(number + table.row.valid)
        return slot_memory(
            m, "low_bytes", write=table.row.valid, slot=number, word=table.low_bytes.as_value(), read=burst
        )

    def _extract(self, m: Module, located: Any, window: Value, low_bytes: Value) -> None:
        """Shift the group's first byte down to bit 0: in one cycle by quarters of a burst, then by the rest."""
        pipeline = Pipeline(m, self.o.ready)
        register = pipeline.register
        offset = located.p.begin.offset
        fine_offset, quarter = offset[:-2], offset[-2:]
        step = self.size // 4  # bytes of a quarter
        coarse = register(_from(window, quarter, 8 * step, 8 * (self.max_bytes + step - 1)), name="coarse")
        width = count_bits(self.group)
        low_coarse = register(_from(low_bytes, quarter, width * step, width * step), name="low_coarse")
        fine_offset = register(fine_offset, name="rest")
        values = _from(coarse, fine_offset, 8, 8 * self.max_bytes)
        missing = register(located.p.missing, name="missing")
        tags = TAG_BITS * self.group
        fields = {
            "tags": Mux(missing, 0, values[:tags]),
            "low_bytes": _from(low_coarse, fine_offset, width, width),
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
    """Return ``width`` bits of ``value``, from bit ``index`` · ``unit`` on."""
    return select([value[unit * n :][:width] for n in range(1 << len(index))], index)
