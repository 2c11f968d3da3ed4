"""Words that were turned become the words of another alignment."""

from __future__ import annotations

import functools
from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.rdma.bursts import reach
from fanin.hdl.net.rdma.shapes import lane_bits, words_bits
from fanin.hdl.stream.lanes import chosen, ones_from
from fanin.rdma import check_width


def window_layout(width: int) -> data.StructLayout:
    """How to merge the next ``words`` words (at least 1): lanes from ``lane`` on are those of the newer one.

    ``single``: it is but one. ``prime``: the first one is only held. ``flush``: behind the last one, what is
    held makes one more. ``drop``: all are thrown away, and ``flush`` must be 0.
    """
    members = {
        "words": words_bits(width),
        "single": 1,
        "lane": lane_bits(width),
        "prime": 1,
        "flush": 1,
        "drop": 1,
    }
    return data.StructLayout(members)


def window(*, width: int, at: Value, to: Value, size: Value) -> dict[str, Value]:
    """What takes ``size`` bytes from lane ``at`` of their first word to lane ``to``: all but ``drop``.

    ``lane`` is the rotation, too.
    """
    bits = lane_bits(width)
    comes, leaves = (reach(start, size, width=width) for start in (at, to))
    prime = to < at
    return {
        "words": comes[bits:],
        "single": comes[bits:] == 1,
        "lane": (to - at)[:bits],
        "prime": prime,
        # To lower lanes, if as many leave as come; else, if one more does: their lowest bits tell.
        "flush": prime ^ comes[bits] ^ leaves[bits],
    }


def merged_layout(width: int, *, late: int) -> data.StructLayout:
    """A merged word; ``late``: the upper bits of its rotation, where that is still to come."""
    return data.StructLayout({"data": width, "first": 1, "last": 1, "late": late})


class WordMerge(wiring.Component):
    """Make each word out of two neighbours: the upper lanes of the newer one, the lower lanes of the older one.

    Before the merge a rotation has brought every byte to its lane; or its coarse part is still to come, the
    upper ``late`` bits of its number of lanes, and the bytes are told apart where they lie now. The word that a
    ``prime`` holds may come in the cycle in which the payload before flushes.

    Members
    -------
    ``command`` : In, stream of :func:`window_layout`
        Taken with its last word; until then it tells how ``i`` must be turned.
    ``i`` : In, stream of ``width`` bits
        ``ready`` follows ``o.ready`` within the cycle.
    ``o`` : Out, stream of ``data``, ``first``, ``last`` and ``late``
        Follows ``i`` within the cycle: one LUT behind the data. ``first`` and ``last`` of its payload; ``late``
        is the rotation that is still to come.

    Parameters
    ----------
    ``width`` : int, bits; 128, 256 or 512
    ``late`` : int, bits; 0 to those of a lane

    Latency
    -------
    0 cycles from ``i`` to ``o``. A cycle for each word that comes, and one more for a ``flush``, in which the
    next payload's first word may come if it is only held.

    Source
    ------
    docs/rdma.md.
    """

    def __init__(self, *, width: int, late: int = 0):
        check_width(width)
        if late not in range(lane_bits(width) + 1):
            raise ValueError(f"late must be 0 to {lane_bits(width)}, not {late!r}")
        self.width = width
        self.late = late
        super().__init__(
            {
                "command": In(stream.Signature(window_layout(width))),
                "i": In(stream.Signature(width)),
                "o": Out(stream.Signature(merged_layout(width, late=late))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """While a word is flushed, another may only be held, since the one output is taken."""
        m = Module()
        command, i, o = self.command.payload, self.i, self.o
        held = Signal(self.width, reset_less=True)
        begun = Signal()  # a word of the command has been taken
        ends = Signal()  # if so: the next one is its last
        number = Signal.like(command.words, init=2)  # of the word behind the next one, from 1
        flushing = Signal()
        first = Signal(init=1)
        newer = Signal(self.width // 8)  # lanes: a signal, lest each lane's multiplexer have all of it anew
        coarse = command.lane[len(command.lane) - self.late :]
        held_coarse = Signal(self.late)
        final, last, holds, room, take = (
            Signal(name=name) for name in ("final", "last", "holds", "room", "take")
        )
        m.d.comb += [
            final.eq(Mux(begun, ends, command.single)),
            holds.eq(command.drop | command.prime & ~begun),
            room.eq(Mux(flushing, holds & o.ready, holds | o.ready)),
            take.eq(self.command.valid & i.valid & room),
            i.ready.eq(self.command.valid & room),
            self.command.ready.eq(i.valid & room & final),
            last.eq(flushing | final & ~command.flush),
            o.valid.eq(flushing | self.command.valid & i.valid & ~holds),
            newer.eq(self._newer(command.lane, coarse) & ~flushing.replicate(self.width // 8)),
            o.payload.data.eq(chosen(newer, i.payload, held)),
            o.payload.first.eq(first),
            o.payload.last.eq(last),
            o.payload.late.eq(Mux(flushing, held_coarse, coarse)),
        ]
        with m.If(take):
            m.d.sync += [
                held.eq(i.payload),
                held_coarse.eq(coarse),
                begun.eq(~final),
                ends.eq(number == command.words),
                number.eq(Mux(final, 2, number + 1)),
                flushing.eq(final & command.flush),
            ]
        with m.Elif(o.ready):
            m.d.sync += flushing.eq(0)
        with m.If(o.valid & o.ready):
            m.d.sync += first.eq(last)
        return m

    def _newer(self, lane: Value, coarse: Value) -> Value:
        """Which bytes are the newer word's: lanes from ``lane`` on, turned back by what is still to come."""
        ones = ones_from(lane, self.width // 8)
        if not self.late:
            return ones
        step = self.width // 8 >> self.late
        backs = [ones.rotate_right(step * n) for n in range(1 << self.late)]
        return functools.reduce(
            lambda others, n: Mux(coarse == n, backs[n], others), range(1, len(backs)), backs[0]
        )
