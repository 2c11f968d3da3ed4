"""Groups that are found, and wait until their bytes are there."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.codec.inceptionn.shapes import BURST_BITS, located_layout, offset_bits, position_layout


def pending_layout(group: int) -> data.StructLayout:
    """A group that is found, and the position after its last byte."""
    return data.StructLayout({"group": located_layout(group), "end": position_layout(group)})


def _entry_layout(group: int) -> data.StructLayout:
    """A pending group, the ``limit`` up to which its frame has come, and whether the frame ``ended`` there."""
    return data.StructLayout({"pending": pending_layout(group), "limit": position_layout(group), "ended": 1})


class PendingGroups(wiring.Component):
    """Hold up to two groups, each until its bytes have come or are known to be missing.

    A group is found by its tags, which may come a burst before its last byte, and in a frame that ends early
    that byte never comes.

    Members
    -------
    ``i`` : In, stream of :func:`pending_layout`
        ``ready`` comes from a register.
    ``arrived`` : In, 4
        Bytes of the bursts before this one can be read in the next cycle. By the time it passes a frame's last
        burst, that frame's end must be on ``frame_end``, or follow there after the ends of earlier frames.
    ``frame_end`` : In, ``valid`` and ``position``
        The position after the frame's last byte, of the frame whose groups are on ``i``. It holds for the
        groups in here, too, unless an earlier frame's end already did.
    ``waiting`` : Out, 1
        There is a group; it is in ``o.p`` even if it cannot leave yet.
    ``o`` : Out, stream of :func:`~fanin.hdl.codec.inceptionn.shapes.located_layout`
        A group, once all of its bytes have come or it is known to be ``missing``.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    1 cycle; one group a cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, group: int = 8):
        self.group = group
        super().__init__(
            {
                "i": In(stream.Signature(pending_layout(group))),
                "arrived": In(BURST_BITS),
                "frame_end": In(data.StructLayout({"valid": 1, "position": position_layout(group)})),
                "waiting": Out(1),
                "o": Out(stream.Signature(located_layout(group))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A queue of two, ``front`` and ``back``. Their limits follow what arrives, up to their frame's end.

        A frame's groups come only after the end of the frame before was on ``frame_end``. So an end that comes
        is the end of every entry that does not have one yet.
        """
        m = Module()
        layout = _entry_layout(self.group)
        front = Signal(layout, reset_less=True)
        back = Signal(layout, reset_less=True)
        full = Signal()  # there is an entry in ``back``, too
        new = Signal(layout)
        short = Signal()  # the front group ends after its limit
        stays = Signal()  # the front group does not leave in this cycle
        room = (front.limit.as_value() - front.pending.end.as_value())[: len(front.limit.as_value())]
        m.d.comb += [
            # ``room`` is negative: its top bits say -4 to -1 bursts, modulo 16. No group ends further off.
            short.eq(room[-2:].all()),
            self.o.p.eq(front.pending.group),
            self.o.p.missing.eq(front.pending.group.missing | front.ended & short),
            self.o.valid.eq(self.waiting & (front.ended | ~short)),
            self.i.ready.eq(~full),
            new.pending.eq(self.i.p),
            stays.eq(self.waiting & ~(self.o.valid & self.o.ready)),
        ]
        m.d.sync += [self.waiting.eq(stays | full | self.i.valid), full.eq(stays & (full | self.i.valid))]

        end = self.frame_end
        limit = Mux(end.valid, end.position, Cat(Const(0, offset_bits(self.group)), self.arrived))

        def load(register: Any, entry: Any) -> list[Any]:
            """Load the entry, with the limit that is known in this cycle."""
            return [
                register.pending.eq(entry.pending),
                register.ended.eq(entry.ended | end.valid),
                register.limit.eq(Mux(entry.ended, entry.limit, limit)),
            ]

        with m.If(full):
            m.d.sync += load(back, back)
        with m.Else():
            m.d.sync += load(back, new)
        with m.If(stays):
            m.d.sync += load(front, front)
        with m.Elif(full):
            m.d.sync += load(front, back)
        with m.Else():
            m.d.sync += load(front, new)
        return m
