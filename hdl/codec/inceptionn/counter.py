"""The groups of frames, counted down."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.codec.inceptionn.rows import place_bits
from fanin.hdl.stream.buffer import RegisterSlice

LENGTH_BITS = 32


class GroupCounter(wiring.Component):
    """Count the groups of each frame: is there one to step to, and is it the last one?

    A frame of n bytes, decompressed, has ceil(n / 4 · ``group``) groups.

    Members
    -------
    ``length`` : In, stream(32)
        Bytes of a frame when decompressed, at least 1; one for each frame.
    ``step`` : In, 1
        Go on to the next group; only with ``valid``.
    ``valid`` : Out, 1
        There is a group.
    ``last`` : Out, 1
        It is its frame's last one, of whose beat ``tail`` + 1 bytes are wanted.
    ``tail`` : Out
    ``next`` : Out, ``valid`` and ``last``
        What they will be in the next cycle; ``last`` only with ``valid``.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    3 cycles from ``length`` to ``valid``; ``next`` follows ``step`` within the cycle. A step a cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, group: int = 8):
        self.place = place_bits(group)
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "step": In(1),
                "valid": Out(1),
                "last": Out(1),
                "tail": Out(self.place),
                "next": Out(data.StructLayout({"valid": 1, "last": 1})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Long counts are compared a step ahead, so that ``next`` comes out of registers."""
        m = Module()
        long = self.place + 3  # bits of a length that is not compared bit by bit
        layout = data.StructLayout(
            {"tail": self.place, "left": LENGTH_BITS - self.place, "one": 1, "two": 1, "four": 1}
        )
        m.submodules.lengths = lengths = RegisterSlice(
            shape=data.StructLayout({"bytes": LENGTH_BITS, "short": 1})
        )
        m.submodules.frames = frames = RegisterSlice(shape=layout)
        length, short = lengths.o.p.bytes, lengths.o.p.short

        def at_most(log2: int) -> Value:
            """Whether a length is at most a power of two."""
            return short & ~(length[log2 + 1 : long].any() | length[log2] & length[:log2].any())

        m.d.comb += [
            lengths.i.valid.eq(self.length.valid),
            lengths.i.p.bytes.eq(self.length.p),
            lengths.i.p.short.eq(_is_zero(self.length.p[long:])),
            self.length.ready.eq(lengths.i.ready),
            frames.i.valid.eq(lengths.o.valid),
            frames.i.p.eq(length - 1),
            frames.i.p.one.eq(at_most(self.place)),
            frames.i.p.two.eq(at_most(self.place + 1)),
            frames.i.p.four.eq(at_most(self.place + 2)),
            lengths.o.ready.eq(frames.i.ready),
        ]
        left = Signal(LENGTH_BITS - self.place, reset_less=True)  # groups behind this one
        few = Signal(reset_less=True)  # fewer than four, if those are fewer than three
        one = Signal(reset_less=True)  # a single one
        following = frames.o
        m.d.comb += [
            following.ready.eq(~self.valid | self.step & self.last),
            self.next.valid.eq(Mux(following.ready, following.valid, self.valid)),
            self.next.last.eq(
                Mux(following.ready, following.valid & following.p.one, Mux(self.step, one, self.last))
            ),
        ]
        m.d.sync += [self.valid.eq(self.next.valid), self.last.eq(self.next.last)]
        with m.If(following.ready):
            m.d.sync += [
                left.eq(following.p.left),
                self.tail.eq(following.p.tail),
                few.eq(following.p.four),
                one.eq(following.p.two),
            ]
        with m.Elif(self.step):
            m.d.sync += [left.eq(left - 1), few.eq(few | _is_zero(left[2:])), one.eq(few & (left[:2] == 2))]
        return m


def _is_zero(value: Value) -> Value:
    """By a carry chain, whose depth does not depend on how synthesis shares it."""
    return (Cat(value, 0) - 1)[len(value)]
