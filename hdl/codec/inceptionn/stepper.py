"""From group to group of a compressed stream, one a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec import FLOAT_BITS, Inceptionn
from fanin.hdl.codec.inceptionn.shifter import picked
from fanin.hdl.codec.inceptionn.starts import BURST_BITS, NUMBERS, SLOTS, end_layout, place_bits
from fanin.hdl.stream.buffer import RegisterSlice

LENGTH_BITS = 32
HALVES = 4  # of bursts; a group spans no more


def step_layout(group: int) -> data.StructLayout:
    """A group: the ``position`` of its first byte; ``missing``: the frame ended before the group did.

    ``last``: it ends its frame, of whose last beat ``tail`` + 1 bytes are wanted. ``pairs``: of the half bursts
    from that in which the group begins, the first one whose number is n modulo 4 is in this pair of slots.
    """
    place = place_bits(group)
    return data.StructLayout(
        {
            "position": BURST_BITS + place,
            "pairs": data.ArrayLayout(range(SLOTS // 2), HALVES),
            "tail": place,
            "last": 1,
            "missing": 1,
        }
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
    ``rows``, ``row``, ``slot``, ``ends`` : the table's, the other way round
    ``there`` : In, 4
        The number of the first burst whose bytes cannot be read yet. When it passes a frame's last burst, the
        frame's end has been on ``ends`` for a cycle.
    ``oldest`` : Out, 4
        Bursts before this one are not needed any more. It may go back, by two at the most.
    ``o`` : Out, stream of :func:`step_layout`
        ``ready`` reaches the step within the cycle. When it is valid, the group's bytes are there.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    1 cycle from a row to ``o``; one group a cycle. A frame whose end is known costs no cycle more.

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
                "rows": In(NUMBERS),
                "row": In(data.ArrayLayout(position, FLOAT_BITS // 8 * group)),
                "slot": Out(range(SLOTS)),
                "ends": In(stream.Signature(end_layout(position))),
                "there": In(BURST_BITS),
                "oldest": Out(BURST_BITS),
                "o": Out(stream.Signature(step_layout(group))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A step takes a group from the table; a cycle later it is checked whether its bytes are there."""
        m = Module()
        position = Signal(BURST_BITS + self.place)  # of the next group
        following = Signal.like(position)
        place, burst = position[: self.place], position[self.place :]
        m.d.comb += [self.slot.eq(burst), following.eq(picked(list(self.row), place))]
        step, free = Signal(), Signal()
        valid, last = self._frames(m, step)
        missing = Signal()  # the group's row: its burst, or that and the one before, is still to come
        past = Signal()  # the frame ended before this group
        seeking = Signal()  # the frame's groups have gone, its end has not come
        ends = self.ends
        m.d.comb += [
            missing.eq((burst == self.rows[0]) | (burst == self.rows[1])),
            past.eq(ends.valid & ((burst == ends.p.into[0]) | (burst == ends.p.into[1]))),
            step.eq(valid & ~seeking & free & (past | ~missing)),
            ends.ready.eq(seeking | step & last),
        ]
        # to the next frame; while that is not known, along with what comes, so that it is dropped
        target = Cat(Const(0, self.place), Mux(ends.valid, ends.p.into[0], self.there))
        with m.If(seeking | step & last):
            m.d.sync += seeking.eq(~ends.valid)
        with m.If(seeking | step & (last | ~past)):
            m.d.sync += position.eq(Mux(seeking | last, target, following))
        self._check(m, step, free, past, position, following)
        return m

    def _frames(self, m: Module, step: Signal) -> tuple[Signal, Signal]:
        """Count the groups of a frame down: whether there is a group to step to, and whether it is the last."""
        layout = data.StructLayout({"tail": self.place, "left": LENGTH_BITS - self.place})
        m.submodules.frames = frames = RegisterSlice(shape=layout)
        m.d.comb += [
            frames.i.valid.eq(self.length.valid),
            self.length.ready.eq(frames.i.ready),
            frames.i.p.eq(self.length.p - 1),
        ]
        valid, last = Signal(), Signal(reset_less=True)
        frame = Signal(layout, reset_less=True)  # ``left``: groups behind the next
        m.d.comb += frames.o.ready.eq(~valid | step & last)
        with m.If(frames.o.ready):
            m.d.sync += [valid.eq(frames.o.valid), frame.eq(frames.o.p), last.eq(frames.o.p.left == 0)]
        with m.Elif(step):
            m.d.sync += [frame.left.eq(frame.left - 1), last.eq(frame.left == 1)]
        with m.If(step):
            m.d.sync += [self.o.p.last.eq(last), self.o.p.tail.eq(frame.tail)]
        return valid, last

    def _check(
        self, m: Module, step: Signal, free: Signal, past: Signal, position: Signal, following: Signal
    ) -> None:
        """Hold a group until its bytes are there, or are known to be missing."""
        waiting = Signal()
        ended = Signal()  # the end of its frame is known
        end, behind = Signal.like(position, reset_less=True), Signal.like(position, reset_less=True)
        skipped = Signal(reset_less=True)
        beyond = Signal()  # it goes on behind the frame's end, or behind what is there
        limit = Mux(ended, end, Cat(Const(0, self.place), self.there))
        m.d.comb += [
            # negative: at most twelve bursts are held, and no group ends as many as four behind them
            beyond.eq((limit - behind)[len(position) - 2 : len(position)].all()),
            self.o.p.missing.eq(skipped | ended & beyond),
            self.o.valid.eq(waiting & (ended | ~beyond)),
            self.oldest.eq(Mux(waiting, self.o.p.position, position)[self.place :]),
            free.eq(~waiting | self.o.valid & self.o.ready),
        ]
        m.d.sync += waiting.eq(step | ~free)
        with m.If(step):
            m.d.sync += [self.o.p.position.eq(position), behind.eq(following), skipped.eq(past)]
            half = position[self.place - 1 :]
            m.d.sync += [pair.eq((half + (HALVES - 1 - n)) >> 2) for n, pair in enumerate(self.o.p.pairs)]
        with m.If(step | ~ended):  # no step: that frame's, or, if it has gone, nobody's
            m.d.sync += [ended.eq(self.ends.valid), end.eq(self.ends.p.position)]
