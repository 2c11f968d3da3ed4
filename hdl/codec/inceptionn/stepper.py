"""From group to group of a compressed stream, one a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec import Inceptionn
from fanin.hdl.codec.inceptionn.rows import BURST_BITS, NUMBERS, RowStore, place_bits, row_layout
from fanin.hdl.codec.inceptionn.shifter import picked
from fanin.hdl.codec.inceptionn.starts import end_layout
from fanin.hdl.stream.buffer import RegisterSlice

LENGTH_BITS = 32


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
    """A group to check: the position ``behind`` it, unless ``fresh``; if ``ended``, its frame's ``end``."""
    position = BURST_BITS + place_bits(group)
    return data.StructLayout(
        {"group": step_layout(group), "behind": position, "fresh": 1, "end": position, "ended": 1}
    )


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
        The number of the first burst whose bytes cannot be read yet. When it passes a frame's last burst, the
        frame's end has been on ``ends`` for a cycle, unless others wait in front of it.
    ``oldest`` : Out, 4
        Bursts before this one are not needed any more. It may go back, by one.
    ``o`` : Out, stream of :func:`step_layout`
        ``ready`` reaches the step within the cycle. When it is valid, the group's bytes are there.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    2 cycles from a row to ``o``; one group a cycle. A frame whose end is known costs no cycle more.

    Source
    ------
    docs/codecs.md.
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
        m.submodules.rows = rows = RowStore(group=self.group)
        place = Signal(self.place)  # of the next group
        following = Signal(row_layout(self.group).elem_shape)
        m.d.comb += [rows.row.eq(self.row), following.eq(picked(list(rows.ends), place))]
        step = Signal()
        full = Signal()
        valid, last, tail = self._frames(m, step)
        past = Signal()  # the frame ended before this group
        seeking = Signal()  # the frame's groups have gone, its end has not come
        turn = Signal()
        ends = self.ends
        m.d.comb += [
            step.eq(valid & ~seeking & ~full & (past | rows.valid)),
            turn.eq(seeking | step & last),
            ends.ready.eq(turn),
            rows.turn.valid.eq(turn & ends.valid),
            rows.turn.to.eq(ends.p.into),
            rows.go.eq(step & ~last & ~past),
            rows.bursts.eq(following.bursts),
        ]
        # known a cycle after the end: no row of the next frame can be open before
        outside = [ends.valid & ((burst == ends.p.into[0]) | (burst == ends.p.into[1])) for burst in rows.open]
        m.d.sync += past.eq(Mux(rows.go, picked(outside, following.bursts), outside[0]))
        with m.If(turn):
            m.d.sync += [seeking.eq(~ends.valid), past.eq(0), place.eq(0)]
        with m.Elif(rows.go):
            m.d.sync += place.eq(following.place)

        new = Signal(_entry_layout(self.group))
        m.d.comb += [
            new.fresh.eq(1),
            new.group.place.eq(place),
            new.group.tail.eq(tail),
            new.group.last.eq(last),
            new.group.missing.eq(past),
            new.group.bursts.eq(rows.open),
        ]
        behind = Cat(following.place, picked(list(rows.open), following.bursts))
        waiting, front = self._queue(m, step, full, new, behind)
        # what comes while the frame's end is not known is dropped
        m.d.comb += self.oldest.eq(Mux(waiting, front.group.bursts[0], Mux(seeking, self.there, rows.open[0])))
        return m

    def _frames(self, m: Module, step: Signal) -> tuple[Signal, Signal, Value]:
        """Count the groups of a frame down: is there one to step to, is it the frame's last, and its tail."""
        layout = data.StructLayout({"tail": self.place, "left": LENGTH_BITS - self.place})
        m.submodules.frames = frames = RegisterSlice(shape=layout)
        m.d.comb += [
            frames.i.valid.eq(self.length.valid),
            self.length.ready.eq(frames.i.ready),
            frames.i.p.eq(self.length.p - 1),
        ]
        valid = Signal()
        last = Signal(reset_less=True)
        frame = Signal(layout, reset_less=True)  # ``left``: groups behind the next
        m.d.comb += frames.o.ready.eq(~valid | step & last)
        with m.If(frames.o.ready):
            m.d.sync += [valid.eq(frames.o.valid), frame.eq(frames.o.p), last.eq(frames.o.p.left == 0)]
        with m.Elif(step):
            m.d.sync += [frame.left.eq(frame.left - 1), last.eq(frame.left == 1)]
        return valid, last, frame.tail

    def _queue(self, m: Module, step: Signal, full: Signal, new: Any, behind: Value) -> tuple[Signal, Any]:
        """Hold groups until the first one's bytes are there, or are known to be missing: it, and if it waits.

        Two of them, so that a step asks a register only. While the end of their frame is not known both watch
        for it: it is the next to come, as no step leads to another frame before. What follows a group is known
        late in the cycle of its step, and so has a register of its own in front of theirs.
        """
        after = Signal.like(new.behind, reset_less=True)
        m.d.sync += after.eq(behind)
        layout = new.shape()
        waiting = Signal()
        leaves = Signal()
        front = Signal(layout, reset_less=True)
        back = Signal(layout, reset_less=True)
        # the same, with what follows
        first = Signal(layout)
        second = Signal(layout)
        for entry, queued in ((first, front), (second, back)):
            m.d.comb += [
                entry.eq(queued),
                entry.behind.eq(Mux(queued.fresh, after, queued.behind)),
                entry.fresh.eq(0),
            ]
        beyond = Signal()  # the first goes on behind its frame's end, or behind what is there
        limit = Mux(front.ended, front.end, Cat(Const(0, self.place), self.there))
        m.d.comb += [
            # negative: fewer than twelve bursts are held, and no group ends as many as four behind them
            beyond.eq((limit - first.behind)[len(limit) - 2 : len(limit)].all()),
            self.o.p.eq(front.group),
            self.o.p.missing.eq(front.group.missing | front.ended & beyond),
            self.o.valid.eq(waiting & (front.ended | ~beyond)),
            leaves.eq(self.o.valid & self.o.ready),
        ]
        stays = waiting & ~leaves
        m.d.sync += [waiting.eq(stays | full | step), full.eq(stays & (full | step))]
        last = Mux(full, second, new)
        for queued, value in ((front, Mux(stays, first, last)), (back, last)):
            entry = layout(value)
            m.d.sync += [
                queued.eq(entry),
                queued.ended.eq(entry.ended | self.ends.valid),
                queued.end.eq(Mux(entry.ended, entry.end, self.ends.p.position)),
            ]
        return waiting, front
