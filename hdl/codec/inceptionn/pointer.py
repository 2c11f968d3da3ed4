"""The pointer to the next group: from group to group in one cycle.

A row of the start table says for every offset in a burst where a group that begins there ends. So the
pointer, a burst and an offset in it, moves by looking itself up in the row of its burst, which lies in
registers. Groups of 8, bursts of 32 bytes; 8+ is offset 8 of the next burst::

    offset               0    1    2    3    4  …  8  …  20  …  29  …  31
    row of burst 5       7    4    6   15   20  …        29  …  8+
    row of burst 6                              …  3+

    cycle    open row    offset    entry there    read ahead    at the cycle's end
      0      burst 5        4          20         rows 6, 7     offset 20
      1      burst 5       20          29         rows 6, 7     offset 29
      2      burst 5       29          8+         rows 6, 7     offset 8, row 6 opens
      3      burst 6        8          3+         rows 7, 8     offset 3, row 7 opens

The entry is late: it is one of 32 or 64, and there is no time to read another row by it. So the row that would
open is read by registers alone while the entry is looked up, and that the group leaves the burst only enables
the registers of the open row. Which row that would be is known early:

- that of the next burst;
- from the last offsets, where a group's tags end in the next burst, perhaps that of the burst after it;
- on a jump, that of the next frame's first burst;
- where the open row has not come yet, the one that comes.

A row that comes in this very cycle is taken as it comes.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.codec import Inceptionn
from fanin.hdl.arith.select import select
from fanin.hdl.codec.inceptionn.shapes import BURST_BITS, SLOTS, burst_bytes, position_layout, row_layout


class GroupPointer(wiring.Component):
    """Keep the rows of bursts, and point at a group's first byte: a group a cycle.

    Members
    -------
    ``row`` : In, ``valid`` and ``ends``, :func:`~fanin.hdl.codec.inceptionn.shapes.row_layout`
        A burst's row. They come in the order of their bursts, numbered modulo 16; the slot of one that comes
        must not be needed any more.
    ``advance`` : In, 1
        Go on to where the group at ``position`` ends; only with ``valid``.
    ``jump`` : In, 1
        Go to the first byte of the next frame; not together with ``advance``.
    ``last`` : In, 1
        From a register: 1 where ``jump`` may come, 0 where ``advance`` may.
    ``frame_end`` : In, ``valid`` and ``next``
        The frame's end is known, and the burst with which the next frame begins: at most two after the burst
        whose row comes next. A jump without it leads nowhere: it is to be repeated.
    ``valid`` : Out, 1
        The row of the burst at ``position`` has come.
    ``position`` : Out, :func:`~fanin.hdl.codec.inceptionn.shapes.position_layout`
    ``end`` : Out, likewise
        Where the group at ``position`` ends; late in the cycle.
    ``past_end`` : Out, 1
        ``position`` lies in a burst after the frame's last one; where there is no row, this is known a cycle
        after
        ``frame_end``.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    1 cycle from ``row``, ``advance`` and ``jump`` to all outputs.

    Source
    ------
    docs/systems/codec.md; INCEPTIONN, section VI-A (tag decoder).
    """

    def __init__(self, *, group: int = 8):
        self.group = group
        self.tag_bytes = Inceptionn(group=group).tag_bytes
        self.size = burst_bytes(group)
        super().__init__(
            {
                "row": In(data.StructLayout({"valid": 1, "ends": row_layout(group)})),
                "advance": In(1),
                "jump": In(1),
                "last": In(1),
                "frame_end": In(data.StructLayout({"valid": 1, "next": BURST_BITS})),
                "valid": Out(1),
                "position": Out(position_layout(group)),
                "end": Out(position_layout(group)),
                "past_end": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Look the position up in the ``open_row``; meanwhile read the row that is opened if it leads on.

        ``entry``, where the group ends, is late. That the group ``skips`` a burst, and ends in the one after
        it, is early: so far reach only those whose tags end in the next burst. ``jump``, ``valid`` and
        ``skips`` choose the ``target``, the burst to open; ``opens``, which waits for the entry, enables the
        registers.
        """
        m = Module()
        open_row = Signal(row_layout(self.group), reset_less=True)
        entry = Signal(open_row.shape().elem_shape)
        tags_cross = Signal()  # the group's tags end in the next burst
        skips = Signal()
        opens = Signal()
        burst, offset = self.position.burst, self.position.offset
        first = self.size - self.tag_bytes  # offset from which on tags cross
        tag_entries = [open_row[first + n].carry for n in range(self.tag_bytes)]
        m.d.comb += [
            entry.eq(select([end.as_value() for end in open_row], offset)),
            tags_cross.eq(offset >= first),
            skips.eq(tags_cross & select(tag_entries, offset[: (self.tag_bytes - 1).bit_length()])),
            opens.eq(self.jump | ~self.valid | self.advance & (tags_cross | entry.carry)),
            self.end.offset.eq(entry.offset),
            self.end.burst.eq(
                Mux(entry.carry, Mux(tags_cross, burst + 2, burst + 1), Mux(tags_cross, burst + 1, burst))
            ),
        ]
        with m.If(self.jump):
            m.d.sync += offset.eq(0)
        with m.Elif(self.advance):
            m.d.sync += offset.eq(entry.offset)

        target = self._target(m, skips)
        with m.If(opens):
            m.d.sync += [
                burst.eq(target.burst),
                open_row.eq(target.ends),
                self.valid.eq(target.valid),
                self.past_end.eq(target.past_end),
            ]
        return m

    def _target(self, m: Module, skips: Value) -> Any:
        """The burst to open next: its row, whether that has come, and whether it lies past the frame's end.

        Distances are counted modulo 16, as bursts are: rows that have come from the open one on (``lead``) and
        from the next frame's first one on, and bursts from that one to the open one (``beyond``).
        """
        burst, row, end = self.position.burst, self.row, self.frame_end
        coming = Signal(BURST_BITS)  # the burst whose row comes next
        m.d.sync += coming.eq(coming + row.valid)
        lead, frame_lead, beyond = Signal(BURST_BITS), Signal(BURST_BITS), Signal(BURST_BITS)
        m.d.comb += [lead.eq(coming - burst), frame_lead.eq(coming - end.next), beyond.eq(burst - end.next)]
        one_on = self._stored(m, "rows", coming, Mux(self.last, end.next, burst + 1))
        two_on = self._stored(m, "rows_two_on", coming, burst + 2)

        def past_end(distance: int) -> Value:
            """The burst so skips after the open one is the first or second of the next frame."""
            return end.valid & ((beyond == -distance % SLOTS) | (beyond == (1 - distance) % SLOTS))

        target = Signal(
            data.StructLayout({"burst": BURST_BITS, "ends": self.row.ends.shape(), "valid": 1, "past_end": 1})
        )
        comes_next = Signal()  # the target's row is the next one to come
        has_come = Signal()
        with m.If(self.jump):
            m.d.comb += [
                target.burst.eq(end.next),
                comes_next.eq(end.valid & (frame_lead == 0)),
                # -1 and -2: rows of other bursts come first
                has_come.eq(end.valid & (frame_lead != 0) & (frame_lead < SLOTS - 2)),
            ]
        with m.Elif(~self.valid):  # the open row is still to come
            m.d.comb += [target.burst.eq(burst), comes_next.eq(lead == 0), target.past_end.eq(past_end(0))]
        with m.Elif(skips):
            m.d.comb += [
                target.burst.eq(burst + 2),
                comes_next.eq(lead == 2),
                has_come.eq(lead > 2),
                target.past_end.eq(past_end(2)),
            ]
        with m.Else():
            m.d.comb += [
                target.burst.eq(burst + 1),
                comes_next.eq(lead == 1),
                has_come.eq(lead > 1),
                target.past_end.eq(past_end(1)),
            ]
        m.d.comb += [
            target.valid.eq(has_come | comes_next & row.valid),
            target.ends.eq(Mux(comes_next, row.ends, Mux(skips & ~self.jump, two_on, one_on))),
        ]
        return target

    def _stored(self, m: Module, name: str, coming: Value, burst: Value) -> Any:
        """A burst's row, from a memory with one read port in which all rows are written."""
        m.submodules[name] = rows = Memory(shape=self.row.ends.shape(), depth=SLOTS, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.row.valid),
            write.addr.eq(coming),
            write.data.eq(self.row.ends),
            read.addr.eq(burst),
        ]
        return read.data
