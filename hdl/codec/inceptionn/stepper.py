"""From group to group, and from frame to frame, of a compressed stream.

How many groups a frame has follows from its length, :class:`GroupCounter`; where each begins,
:class:`GroupPointer` finds. A frame may end before its groups do, and may have bytes after them; the next one
begins with a burst of its own in any case. An example: two frames, the first of 3 groups in bursts 0 and 1,
then of a burst 2 that is not asked for; the second in burst 3::

    cycle      0      1      2      3      4      5      6
    row        0      1      2      -      3                    arrives
    frame_end                       3                           the next frame begins with burst 3
    position   -     0:0    0:20   1:11    -     3:0            burst:offset
    step             ✓      ✓      ✓ last        ✓              a group is found
    jump                           ✓                            its frame's last group: on to burst 3
    o                       0:0    0:20   1:11   -     3:0      if its bytes are there

If the end of the first frame came later, all cycles from its last group on would be a ``jump`` (``seeking``)
until it comes; what arrives meanwhile is dropped. If the frame ended with burst 0, ``past_end`` would let the
third group pass as one that is missing.
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
    """Find the groups of frames, one after the other, by the rows of a start table.

    A frame of n bytes, decompressed, has ceil(n / 4 · ``group``) groups. The next frame begins with the burst
    after the frame's last one, wherever its groups ended. A group whose bytes are not all in the frame is
    missing, and so are all after it.

    Members
    -------
    ``length`` : In, stream(32)
        Bytes of a frame when decompressed, at least 1; one for each frame.
    ``row``, ``frame_end`` : In, those of :class:`~fanin.hdl.codec.inceptionn.starts.StartTable`
        A burst comes at most 11 after ``oldest``. The next frame's first row comes after a frame's end.
    ``arrived`` : In, 4
        Bytes of the bursts before this one can be read in the next cycle. When it passes a frame's last burst,
        that frame's end is on ``frame_end``, unless the ends of earlier frames are.
    ``oldest`` : Out, 4
        Bursts before this one are not needed any more. It may go back, by one.
    ``o`` : Out, stream of :func:`~fanin.hdl.codec.inceptionn.shapes.located_layout`
        A group whose bytes are there, or which is missing.

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
        """A ``step`` takes a group from counter and pointer to those that are pending.

        With the last one of a frame the pointer jumps to the next frame; where that begins is not known yet,
        the stepper is ``seeking``: it jumps in every cycle until it is.
        """
        m = Module()
        m.submodules.pointer = pointer = GroupPointer(group=self.group)
        m.submodules.counter = counter = GroupCounter(group=self.group)
        m.submodules.pending = pending = PendingGroups(group=self.group)
        connect_typed(m, wiring.flipped(self.length), counter.length)
        connect_typed(m, pending.o, wiring.flipped(self.o))
        frame_end = self.frame_end
        step, jump, seeking = Signal(), Signal(), Signal()
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
            pointer.last.eq(seeking | counter.last),
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
        # while the stepper is seeking it drops all that arrives
        needed = Mux(seeking, arrived, pointer.position.burst)
        m.d.comb += self.oldest.eq(Mux(pending.waiting, pending.o.p.begin.burst, needed))
        return m
