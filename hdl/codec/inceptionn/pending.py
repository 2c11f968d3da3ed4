"""Queue of groups that are found and wait for their bytes."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.codec.inceptionn.shapes import BURST_BITS, located_layout, offset_bits, position_layout


def pending_layout(group: int) -> data.StructLayout:
    """Return the layout of a found group and the position after its last byte."""
    return data.StructLayout({"group": located_layout(group), "end": position_layout(group)})


def _entry_layout(group: int) -> data.StructLayout:
    """Return the layout of an entry: a group, the ``limit`` of its frame's arrived bytes, and its final end.

    ``ended``: the frame ends at ``limit``.
    """
    return data.StructLayout({"pending": pending_layout(group), "limit": position_layout(group), "ended": 1})


class PendingGroups(wiring.Component):
    """Queue of up to two groups, each held until its bytes have arrived or are known to be missing.

    A group is found by its tags, which may arrive a burst before its last byte. In a frame that ends early that
    byte never arrives.

    Members
    -------
    ``i`` : In, stream of :func:`pending_layout`
        Found groups. ``ready`` comes from a register.
    ``arrived`` : In, 4
        Bytes of bursts before this number can be read in the next cycle. When it passes a frame's last burst,
        that frame's end must be on ``frame_end``, or follow there after the ends of earlier frames.
    ``frame_end`` : In, ``valid`` and ``position``
        Position after the last byte of the frame whose groups are on ``i``. It also applies to the groups held
        here, unless an earlier frame's end already did.
    ``waiting`` : Out, 1
        A group is held; it is in ``o.p`` even if it cannot leave yet.
    ``o`` : Out, stream of :func:`~fanin.hdl.codec.inceptionn.shapes.located_layout`
        Groups; each leaves when all of its bytes have arrived or it is known to be ``missing``.

    Parameters
    ----------
    ``group`` : int
        Values of a group: 8 or 16. Default 8.

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
        """Keep two entries, ``front`` and ``back``; their limits follow ``arrived`` up to their frame's end.

        A frame's groups arrive only after the previous frame's end was on ``frame_end``. An end therefore
        belongs to every entry that has none yet.
        """
        m = Module()
        layout = _entry_layout(self.group)
        front = Signal(layout, reset_less=True)
        back = Signal(layout, reset_less=True)
        full = Signal()  # ``back`` is valid, too
        incoming = Signal(layout)
        past_limit = Signal()  # the front group ends after its limit
        front_stays = Signal()  # the front group does not leave in this cycle
        margin = (front.limit.as_value() - front.pending.end.as_value())[: len(front.limit.as_value())]
        m.d.comb += [
            # ``margin`` is negative: its top bits mean -4 to -1 bursts, modulo 16. No group ends further away.
            past_limit.eq(margin[-2:].all()),
            self.o.p.eq(front.pending.group),
            self.o.p.missing.eq(front.pending.group.missing | front.ended & past_limit),
            self.o.valid.eq(self.waiting & (front.ended | ~past_limit)),
            self.i.ready.eq(~full),
            incoming.pending.eq(self.i.p),
            front_stays.eq(self.waiting & ~(self.o.valid & self.o.ready)),
        ]
        m.d.sync += [
            self.waiting.eq(front_stays | full | self.i.valid),
            full.eq(front_stays & (full | self.i.valid)),
        ]

        end = self.frame_end
        limit = Mux(end.valid, end.position, Cat(Const(0, offset_bits(self.group)), self.arrived))

        def load(register: Any, entry: Any) -> list[Any]:
            """Return statements that load the entry, with the limit known in this cycle."""
            return [
                register.pending.eq(entry.pending),
                register.ended.eq(entry.ended | end.valid),
                register.limit.eq(Mux(entry.ended, entry.limit, limit)),
            ]

        with m.If(full):
            m.d.sync += load(back, back)
        with m.Else():
            m.d.sync += load(back, incoming)
        with m.If(front_stays):
            m.d.sync += load(front, front)
        with m.Elif(full):
            m.d.sync += load(front, back)
        with m.Else():
            m.d.sync += load(front, incoming)
        return m
