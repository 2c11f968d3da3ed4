"""From group to group of a compressed stream, one a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec import Inceptionn
from fanin.hdl.codec.inceptionn.counter import LENGTH_BITS, GroupCounter
from fanin.hdl.codec.inceptionn.rows import BURST_BITS, NUMBERS, RowWalk, place_bits, row_layout
from fanin.hdl.codec.inceptionn.starts import end_layout
from fanin.hdl.stream.connect import connect_typed


def step_layout(group: int) -> data.StructLayout:
    """A group: the ``bursts`` that may have its bytes, and the ``place`` of the first one in the first.

    ``last``: it ends its frame, of whose last beat ``tail`` + 1 bytes are wanted. ``missing``: the frame ended
    before the group did.
    """
    place = place_bits(group)
    return data.StructLayout(
        {
            "bursts": NUMBERS,
            "place": place,
            "tail": place,
            "last": 1,
            "missing": 1,
        }
    )


def _entry_layout(group: int) -> data.StructLayout:
    """A group to check: up to which position bytes are there; its frame's end, if it has ``ended``."""
    position = BURST_BITS + place_bits(group)
    return data.StructLayout({"group": step_layout(group), "limit": position, "ended": 1})


def _end_layout(group: int) -> data.StructLayout:
    """Where a group ends: in ``burst``, or in the ``next`` if it goes on."""
    return data.StructLayout({"end": row_layout(group).elem_shape, "burst": BURST_BITS, "next": BURST_BITS})


class GroupStepper(wiring.Component):
    """Step from group to group through the rows of a :class:`StartTable`.

    A frame of n bytes, decompressed, has ceil(n / 4 · ``group``) groups. The next frame begins with the burst
    behind the frame's last one, wherever its groups ended. A group whose bytes are not all in the frame is
    missing, and so are all behind it.

    Members
    -------
    ``length`` : In, stream(32)
        Bytes of a frame when decompressed, at least 1; one for each frame.
    ``row``, ``ends`` : the table's, the other way round
        A burst comes at most 11 after ``oldest``. The next frame's first row comes after a frame's end.
    ``there`` : In, 4
        Bytes of the bursts in front of this one can be read in the next cycle. When it passes a frame's last
        burst, the frame's end is on ``ends``, unless others wait in front of it.
    ``oldest`` : Out, 4
        Bursts before this one are not needed any more. It may go back, by one.
    ``o`` : Out, stream of :func:`step_layout`
        When it is valid, the group's bytes are there, or known to be missing.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    2 cycles from a row to ``o``; one group a cycle. A frame whose end is known costs no cycle more.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, group: int = 8):
        self.config = Inceptionn(group=group)
        self.group = group
        self.place = place_bits(group)
        position = BURST_BITS + self.place
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "row": In(data.StructLayout({"valid": 1, "ends": row_layout(group)})),
                "ends": In(stream.Signature(end_layout(position))),
                "there": In(BURST_BITS),
                "oldest": Out(BURST_BITS),
                "o": Out(stream.Signature(step_layout(group))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A step takes a group from the table; a cycle later it is checked whether its bytes are there."""
        m = Module()
        m.submodules.rows = rows = RowWalk(group=self.group)
        m.submodules.counter = counter = GroupCounter(group=self.group)
        connect_typed(m, wiring.flipped(self.length), counter.length)
        step = Signal()
        full = Signal()
        seeking = Signal()  # the frame's groups have gone, its end has not come
        seeks = Signal()  # in the next cycle
        turn = Signal()
        # if there is a group and its frame is not sought: it is not the last, it is
        more, ending = Signal(), Signal()
        ends = self.ends
        m.d.comb += [
            step.eq((more | ending) & ~full & (rows.past | rows.valid)),
            turn.eq(seeking | ending & ~full & (rows.past | rows.valid)),
            seeks.eq(Mux(turn, ~ends.valid, seeking)),
            counter.step.eq(step),
            ends.ready.eq(turn),
            rows.row.eq(self.row),
            rows.turn.eq(turn),
            rows.to.valid.eq(ends.valid),
            rows.to.last.eq(ends.p.last),
            rows.to.numbers.eq(ends.p.into),
            rows.go.eq(more & ~full & rows.valid & ~rows.past),
            # known a cycle after the end: no row of the next frame can be open before
            rows.outside.eq(
                Cat(ends.valid & ((burst == ends.p.into[0]) | (burst == ends.p.into[1])) for burst in rows.open)
            ),
        ]
        m.d.sync += [
            seeking.eq(seeks),
            more.eq(counter.next.valid & ~counter.next.last & ~seeks),
            ending.eq(counter.next.valid & counter.next.last & ~seeks),
        ]

        waiting, front = self._queue(m, step, full, *self._group(m, rows, counter))
        # what comes while the frame's end is not known is dropped
        there = Signal.like(self.there)
        m.d.sync += there.eq(self.there)
        m.d.comb += self.oldest.eq(Mux(waiting, front.group.bursts[0], Mux(seeking, there, rows.open[0])))
        return m

    def _group(self, m: Module, rows: RowWalk, counter: GroupCounter) -> tuple[Any, Any]:
        """The group that is stepped from, and what is behind it."""
        new = Signal(step_layout(self.group))
        m.d.comb += [
            new.place.eq(rows.place),
            new.tail.eq(counter.tail),
            new.last.eq(counter.last),
            new.missing.eq(rows.past),
            new.bursts.eq(rows.open),
        ]
        behind = Signal(_end_layout(self.group))
        m.d.comb += [
            behind.end.eq(rows.end),
            behind.burst.eq(Mux(rows.tail, rows.open[1], rows.open[0])),
            behind.next.eq(Mux(rows.tail, rows.open[2], rows.open[1])),
        ]
        return new, behind

    def _queue(self, m: Module, step: Signal, full: Signal, new: Any, behind: Any) -> tuple[Signal, Any]:
        """Hold groups until the first one's bytes are there, or are known to be missing: it, and if it waits.

        Two of them, so that a step asks a register only. While the end of their frame is not known both watch
        for it: it is the next to come, as no step leads to another frame before. What follows a group is known
        late in the cycle of its step, and so kept apart: of the newest one as it comes, and of the older one.
        """
        newest = Signal.like(behind, reset_less=True)
        position = Cat(newest.end.place, Mux(newest.end.on, newest.next, newest.burst))
        older = Signal.like(position, reset_less=True)
        with m.If(step):
            m.d.sync += [newest.eq(behind), older.eq(position)]
        layout = _entry_layout(self.group)
        waiting = Signal()
        front = Signal(layout, reset_less=True)
        back = Signal(layout, reset_less=True)
        room = front.limit - Mux(full, older, position)
        # negative: fewer than twelve bursts are held, and no group ends as many as four behind them
        beyond = room[len(front.limit) - 2 : len(front.limit)].all()  # the frame's end, or what is there
        m.d.comb += [
            self.o.p.eq(front.group),
            self.o.p.missing.eq(front.group.missing | front.ended & beyond),
            self.o.valid.eq(waiting & (front.ended | ~beyond)),
        ]
        keeps = waiting & ~self.o.ready
        stays = keeps | waiting & ~front.ended & beyond  # which is late
        m.d.sync += [waiting.eq(stays | full | step), full.eq(stays & (full | step))]
        with m.If(~full):
            m.d.sync += back.group.eq(new)
        with m.If(~stays):
            m.d.sync += front.group.eq(Mux(full, back.group, new))
        # Where the end is not known they have the same limit; where it is, nothing that is late is asked.
        limit = Mux(self.ends.valid, self.ends.p.position, Cat(Const(0, self.place), self.there))
        m.d.sync += [
            front.ended.eq(self.ends.valid | front.ended & keeps | full & back.ended),
            back.ended.eq(self.ends.valid | full & back.ended),
            back.limit.eq(Mux(full & back.ended, back.limit, limit)),
        ]
        with m.If(~(front.ended & keeps)):
            m.d.sync += front.limit.eq(Mux(full & back.ended, back.limit, limit))
        return waiting, front
