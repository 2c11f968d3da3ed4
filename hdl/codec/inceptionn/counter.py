"""Counter of the groups of frames."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.codec.inceptionn.shapes import LENGTH_BITS, offset_bits
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed


class GroupCounter(wiring.Component):
    """Counter of each frame's remaining groups; marks the last group.

    A frame of n decompressed bytes has ceil(n / (4 · ``group``)) groups.

    Members
    -------
    ``length`` : In, stream(32)
        Decompressed bytes of a frame, at least 1; one length for each frame.
    ``step`` : In, 1
        Advance to the next group. Allowed only with ``valid``.
    ``valid`` : Out, 1
        A group remains.
    ``last`` : Out, 1
        With ``valid``: the group is its frame's last.
    ``tail`` : Out
        Bytes of the frame in its last group, less 1.

    Parameters
    ----------
    ``group`` : int
        Values of a group: 8 or 16. Default 8.

    Latency
    -------
    3 cycles from ``length`` to ``valid``; one step a cycle, across frames.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, group: int = 8):
        self.group = group
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "step": In(1),
                "valid": Out(1),
                "last": Out(1),
                "tail": Out(offset_bits(group)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count ``groups_left`` down; registers before it hold the length and then the length less 1.

        n - 1 is the index of the frame's last byte. Its low bits are ``tail``, that byte's place in the last
        group. Its other bits are the number of groups before the last.
        """
        m = Module()
        bits = offset_bits(self.group)
        layout = data.StructLayout({"tail": bits, "groups_left": LENGTH_BITS - bits})
        m.submodules.lengths = lengths = RegisterSlice(shape=LENGTH_BITS)
        m.submodules.frames = frames = RegisterSlice(shape=layout)
        connect_typed(m, wiring.flipped(self.length), lengths.i)
        m.d.comb += [
            frames.i.valid.eq(lengths.o.valid),
            frames.i.p.eq(lengths.o.p - 1),
            lengths.o.ready.eq(frames.i.ready),
        ]
        groups_left = Signal(LENGTH_BITS - bits, reset_less=True)  # groups of the frame after this one
        load = Signal()
        m.d.comb += [load.eq(~self.valid | self.step & self.last), frames.o.ready.eq(load)]
        with m.If(load):
            m.d.sync += [
                self.valid.eq(frames.o.valid),
                self.last.eq(frames.o.p.groups_left == 0),
                Cat(self.tail, groups_left).eq(frames.o.p),
            ]
        with m.Elif(self.step):
            m.d.sync += [groups_left.eq(groups_left - 1), self.last.eq(groups_left == 1)]
        return m
