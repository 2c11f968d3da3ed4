"""Pointer to the next group; moves from group to group in one cycle.

A row of the start table has an *entry* for every offset in a burst: the end of a group that begins there, which
is also the begin of the next group. The pointer is a burst and an offset in it. It moves by looking itself up
in the *open row*, the row of its burst, which is kept in registers. Example: groups of 8, bursts of 32 bytes;
8+ is offset 8 with ``carry``::

    offset               0    1    2    3    4  …  8  …  20  …  29  …  31
    row of burst 5       7    4    6   15   20  …        29  …  8+
    row of burst 6                              …  3+

    cycle    open row    offset    its entry    read ahead    at the cycle's end
      0      burst 5        4         20        rows 6, 7     offset 20
      1      burst 5       20         29        rows 6, 7     offset 29
      2      burst 5       29         8+        rows 6, 7     offset 8, row 6 opens
      3      burst 6        8         3+        rows 7, 8     offset 3, row 7 opens

A group's tags come first. They *cross* if the byte after them is in the next burst: here from offset 30 on.
``carry`` counts from the burst of that byte (``row_layout``). Tags that cross therefore add one burst, and
``carry`` adds another::

    tags cross    carry    a group of burst 5 ends in burst
    no            0        5                                   row 5 stays open
    no            1        6
    yes           0        6
    yes           1        7                                   the group skips burst 6

The entry, one of 32 or 64, settles late in the cycle, too late to read another row by it. The rows of the next
two bursts are therefore read ahead, by addresses from registers. Where a frame may end, the row of the next
frame's first burst is read instead of the next burst's. The *target*, the burst that may open next, is known
early (``_target`` lists the cases). The entry only decides whether the group leaves the burst, which enables
the registers of the open row.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import Inceptionn
from fanin.hdl.arith.select import select
from fanin.hdl.codec.inceptionn.shapes import BURST_BITS, SLOTS, burst_bytes, position_layout, row_layout
from fanin.hdl.codec.inceptionn.slot_memory import slot_memory


class GroupPointer(wiring.Component):
    """Pointer to a group's first byte, with a store of the bursts' rows; moves by one group a cycle.

    Members
    -------
    ``row`` : In, ``valid`` and ``ends``, :func:`~fanin.hdl.codec.inceptionn.shapes.row_layout`
        A burst's row. Rows arrive in the order of their bursts, numbered modulo 16. A row replaces the one 16
        bursts before, which must not be needed any more.
    ``advance`` : In, 1
        Move to the end of the group at ``position``. Allowed only with ``valid``.
    ``jump`` : In, 1
        Move to the next frame's first byte. Not together with ``advance``.
    ``may_jump`` : In, 1
        1 in a cycle in which ``jump`` may come, 0 in a cycle in which ``advance`` may come. It selects the row
        to read ahead, so it must come from registers alone.
    ``frame_end`` : In, ``valid`` and ``next``
        ``valid``: the frame's end is known. ``next``: the next frame's first burst, at most two after the burst
        of the next row. A jump without ``frame_end.valid`` has no effect and must be repeated.
    ``valid`` : Out, 1
        The row of the burst at ``position`` has arrived.
    ``position`` : Out, :func:`~fanin.hdl.codec.inceptionn.shapes.position_layout`
        Position of a group's first byte.
    ``end`` : Out, :func:`~fanin.hdl.codec.inceptionn.shapes.position_layout`
        End of the group at ``position``; valid late in the cycle.
    ``past_end`` : Out, 1
        ``position`` is in a burst after the frame's last burst. If that burst's row has not arrived, this is
        known a cycle after ``frame_end``.

    Parameters
    ----------
    ``group`` : int
        Values of a group: 8 or 16. Default 8.

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
                "may_jump": In(1),
                "frame_end": In(data.StructLayout({"valid": 1, "next": BURST_BITS})),
                "valid": Out(1),
                "position": Out(position_layout(group)),
                "end": Out(position_layout(group)),
                "past_end": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Look ``position`` up in ``open_row``, and choose the ``target``, the burst to open next, in parallel.

        ``entry`` settles late, ``skips`` early: a group that skips a burst begins at one of the few offsets
        from which tags cross. ``jump``, ``valid`` and ``skips`` choose the target. ``opens``, which waits for
        the entry, enables the registers.
        """
        m = Module()
        open_row = Signal(row_layout(self.group), reset_less=True)
        entry = Signal(open_row.shape().elem_shape)
        tags_cross = Signal()  # the byte after the group's tags is in the next burst
        skips = Signal()  # the group ends in the second burst after this one
        opens = Signal()  # the target becomes the open burst
        burst, offset = self.position.burst, self.position.offset
        crossing = self.size - self.tag_bytes  # the lowest offset from which tags cross
        crossing_carries = [open_row[crossing + n].carry for n in range(self.tag_bytes)]
        m.d.comb += [
            entry.eq(select([end.as_value() for end in open_row], offset)),
            tags_cross.eq(offset >= crossing),
            skips.eq(tags_cross & select(crossing_carries, offset[: (self.tag_bytes - 1).bit_length()])),
            opens.eq(self.jump | ~self.valid | self.advance & (tags_cross | entry.carry)),
            self.end.offset.eq(entry.offset),
            # No sum of all three: both choices are ready when the late carry selects one.
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
        """Return the burst to open next: its row, whether the row has arrived, and whether it is past the end.

        ``rows_ahead`` counts the arrived rows from the open burst's on. The row of the burst n after the open
        one has arrived if ``rows_ahead`` > n, and is the next to arrive if ``rows_ahead`` = n. All are counted
        modulo 16, as bursts are. The first matching case applies::

            case                     target          row has arrived if    row is next if        row is read as
            jump                     frame_end.next  frame_rows_ahead > 0  frame_rows_ahead = 0  next_row
            open row is missing      burst           never                 rows_ahead = 0
            group skips a burst      burst + 2       rows_ahead > 2        rows_ahead = 2        row_after_next
            else                     burst + 1       rows_ahead > 1        rows_ahead = 1        next_row

        The next row to arrive is not read: it is taken from ``row`` in the cycle of its arrival.
        """
        burst, row, frame_end = self.position.burst, self.row, self.frame_end
        row_burst = Signal(BURST_BITS)  # burst of the next row
        m.d.sync += row_burst.eq(row_burst + row.valid)
        rows_ahead = Signal(BURST_BITS)
        frame_rows_ahead = Signal(BURST_BITS)  # arrived rows from the next frame's first burst on
        past_by = Signal(BURST_BITS)  # bursts from the next frame's first burst to the open burst
        m.d.comb += [
            rows_ahead.eq(row_burst - burst),
            frame_rows_ahead.eq(row_burst - frame_end.next),
            past_by.eq(burst - frame_end.next),
        ]
        next_row = self._kept_row(m, "rows", row_burst, Mux(self.may_jump, frame_end.next, burst + 1))
        row_after_next = self._kept_row(m, "rows_after_next", row_burst, burst + 2)

        def past_end(distance: int) -> Value:
            """Return whether the burst ``distance`` after the open one is the next frame's first or second.

            For these bursts ``past_by`` + ``distance`` is 0 or 1. The constants are on the right-hand side, so
            that no sum precedes the comparison.
            """
            return frame_end.valid & ((past_by == -distance % SLOTS) | (past_by == (1 - distance) % SLOTS))

        target = Signal(
            data.StructLayout({"burst": BURST_BITS, "ends": self.row.ends.shape(), "valid": 1, "past_end": 1})
        )
        comes_next = Signal()  # the target's row is the next to arrive
        has_come = Signal()  # the target's row can be read
        with m.If(self.jump):
            m.d.comb += [
                target.burst.eq(frame_end.next),
                comes_next.eq(frame_end.valid & (frame_rows_ahead == 0)),
                # 14 and 15 mean -2 and -1: rows of one or two other bursts arrive first
                has_come.eq(frame_end.valid & (frame_rows_ahead != 0) & (frame_rows_ahead < SLOTS - 2)),
            ]
        with m.Elif(~self.valid):
            m.d.comb += [
                target.burst.eq(burst),
                comes_next.eq(rows_ahead == 0),
                target.past_end.eq(past_end(0)),
            ]
        with m.Elif(skips):
            m.d.comb += [
                target.burst.eq(burst + 2),
                comes_next.eq(rows_ahead == 2),
                has_come.eq(rows_ahead > 2),
                target.past_end.eq(past_end(2)),
            ]
        with m.Else():
            m.d.comb += [
                target.burst.eq(burst + 1),
                comes_next.eq(rows_ahead == 1),
                has_come.eq(rows_ahead > 1),
                target.past_end.eq(past_end(1)),
            ]
        m.d.comb += [
            target.valid.eq(has_come | comes_next & row.valid),
            target.ends.eq(Mux(comes_next, row.ends, Mux(skips & ~self.jump, row_after_next, next_row))),
        ]
        return target

    def _kept_row(self, m: Module, name: str, row_burst: Value, burst: Value) -> Any:
        """Return the row of ``burst`` from a memory of all rows, with one read port of its own."""
        row = self.row
        return slot_memory(m, name, write=row.valid, slot=row_burst, word=row.ends, read=burst)
