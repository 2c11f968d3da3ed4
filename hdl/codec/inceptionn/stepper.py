"""Stepper from group to group, and from frame to frame, of a compressed stream.

A frame's length determines its number of groups, which :class:`GroupCounter` counts down. :class:`GroupPointer`
finds the begin of each group. :class:`PendingGroups` holds a group until its bytes have arrived.

A compressed frame does not always end with its last group. It may have more bursts, which are dropped, or it
may end earlier, so that its last groups are missing. ``frame_end`` is its actual end; the next frame begins
with the following burst. Example: a frame has three groups in bursts 0 and 1, and a burst 2 in which no group
begins. The next frame has a single group, in burst 3::

    cycle        0      1      2      3      4      5      6
    row of       0      1      2             3                   arrives
    frame_end                  3      3                          known: the next frame begins with burst 3
    position           0:0    0:20   1:11   3:0    3:0           burst:offset; row 3 is usable from cycle 5 on
    step                x      x      x             x            a group is found
    jump                              x             x            the group is its frame's last
    o                         0:0    0:20   1:11          3:0    the group, with its bytes

If the first frame's end came later, the stepper would be ``seeking`` after cycle 3: it would jump in every
cycle until the end is known, and drop the bursts that arrive meanwhile. If the first frame ended with burst 0,
the pointer would report ``past_end`` in burst 1, and the third group would be found as missing. The second
group, 0:20 to 1:11, would be found normally; PendingGroups then reports it as missing, since its bytes extend
into burst 1.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.codec.inceptionn.counter import GroupCounter
from fanin.hdl.codec.inceptionn.pending import PendingGroups
from fanin.hdl.codec.inceptionn.pointer import GroupPointer
from fanin.hdl.codec.inceptionn.shapes import (
    BURST_BITS,
    LENGTH_BITS,
    frame_end_layout,
    located_layout,
    row_layout,
)
from fanin.hdl.stream.connect import connect_typed


class GroupStepper(wiring.Component):
    """Finder of the groups of frames, one after the other, by the rows of a start table.

    A frame of n decompressed bytes has ceil(n / (4 · ``group``)) groups. The next frame begins with the burst
    after the frame's last burst, no matter where its groups ended. A group that is not completely in the frame
    is missing, and so are all later groups.

    Members
    -------
    ``length`` : In, stream(32)
        Decompressed bytes of a frame, at least 1; one length for each frame.
    ``row``, ``frame_end`` : In, those of :class:`~fanin.hdl.codec.inceptionn.starts.StartTable`
        Rows and frame ends. A burst is at most 11 after ``oldest``: burst numbers are compared modulo 16, and
        differences of 12 to 15 mean negative ones. The next frame's first row comes after a frame's end.
    ``arrived`` : In, 4
        Bytes of bursts before this number can be read in the next cycle. When it passes a frame's last burst,
        that frame's end must be queued on ``frame_end``: first, or after the ends of earlier frames.
    ``oldest`` : Out, 4
        Bursts before this number are not needed any more. The number decreases by one if a frame ends early and
        a group that begins in its last burst would end two bursts later. The pointer is then in the next
        frame's second burst, and jumps to its first.
    ``o`` : Out, stream of :func:`~fanin.hdl.codec.inceptionn.shapes.located_layout`
        Groups; each leaves when all of its bytes have arrived or it is known to be missing.

    Parameters
    ----------
    ``group`` : int
        Values of a group: 8 or 16. Default 8.

    Latency
    -------
    2 cycles from a row to ``o``; one group a cycle. The change to the next frame costs no cycle if the frame's
    end is known by then.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, group: int = 8):
        self.group = group
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "row": In(data.StructLayout({"valid": 1, "ends": row_layout(group)})),
                "frame_end": In(stream.Signature(frame_end_layout(group))),
                "arrived": In(BURST_BITS),
                "oldest": Out(BURST_BITS),
                "o": Out(stream.Signature(located_layout(group))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Move a group from counter and pointer to the pending groups in each ``step``.

        With a frame's last group the pointer jumps to the next frame. While the next frame's begin is unknown,
        the stepper is ``seeking``: it jumps in every cycle.
        """
        m = Module()
        m.submodules.pointer = pointer = GroupPointer(group=self.group)
        m.submodules.counter = counter = GroupCounter(group=self.group)
        m.submodules.pending = pending = PendingGroups(group=self.group)
        connect_typed(m, wiring.flipped(self.length), counter.length)
        connect_typed(m, pending.o, wiring.flipped(self.o))
        frame_end = self.frame_end
        step = Signal()
        jump = Signal()
        seeking = Signal()
        m.d.comb += [
            step.eq(counter.valid & ~seeking & pending.i.ready & (pointer.valid | pointer.past_end)),
            jump.eq(seeking | step & counter.last),
            frame_end.ready.eq(jump),
        ]
        m.d.sync += seeking.eq(jump & ~frame_end.valid)
        m.d.comb += [
            counter.step.eq(step),
            pointer.row.eq(self.row),
            pointer.advance.eq(step & ~counter.last & ~pointer.past_end),
            pointer.jump.eq(jump),
            pointer.may_jump.eq(seeking | counter.last),
            pointer.frame_end.valid.eq(frame_end.valid),
            pointer.frame_end.next.eq(frame_end.p.next),
            pending.arrived.eq(self.arrived),
            pending.frame_end.valid.eq(frame_end.valid),
            pending.frame_end.position.eq(frame_end.p.position),
            pending.i.valid.eq(step),
            pending.i.p.group.begin.eq(pointer.position),
            pending.i.p.group.tail.eq(counter.tail),
            pending.i.p.group.last.eq(counter.last),
            pending.i.p.group.missing.eq(pointer.past_end),
            pending.i.p.end.eq(pointer.end),
        ]
        arrived = Signal(BURST_BITS)
        m.d.sync += arrived.eq(self.arrived)
        # a seeking stepper drops all bursts that arrive
        oldest_needed = Mux(seeking, arrived, pointer.position.burst)
        m.d.comb += self.oldest.eq(Mux(pending.waiting, pending.o.p.begin.burst, oldest_needed))
        return m
