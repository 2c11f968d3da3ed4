"""Compressor of frames of gradients."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import FLOAT_BITS, MAX_BOUND, Inceptionn, Mode
from fanin.hdl.arith.delay import Pipeline
from fanin.hdl.codec.inceptionn.block import COMPRESSION_LATENCY, CompressionBlock
from fanin.hdl.codec.inceptionn.shifter import join, shifter_latency
from fanin.hdl.codec.packer import BytePacker
from fanin.hdl.stream.buffer import SkidBuffer
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_layout, packet_stream


class InceptionnCompressor(wiring.Component):
    """Compressor of frames of binary32 values, a beat of ``group`` values a cycle.

    A frame is any number of bytes, at least 1. Groups are packed without gaps, each with its tags before its
    values' bytes (docs/systems/codec.md). A value with some bytes missing is filled up with zero bytes and sent
    raw. Missing values of the last group are zeros.

    A group without a shrinking value is 34 bytes (with ``group`` 16: 68), a beat 32 (64). ``i`` then waits one
    cycle in 17; otherwise ``i`` waits only for ``o``.

    Members
    -------
    ``i`` : In, packet stream of 32 · ``group`` bits
        Frames.
    ``bound`` : In, 4
        Exponent b of the error bound 2^-b, 1 to 15; constant while a frame is inside.
    ``mode`` : In, Mode
        ``strict`` or ``published``; constant while a frame is inside.
    ``o`` : Out, packet stream of 32 · ``group`` bits
        Compressed frames.

    Parameters
    ----------
    ``group`` : int
        Values of a group: 8 or 16. Default 8.

    Latency
    -------
    6 cycles (``group`` 16: 7) from a beat on ``i`` to the beat on ``o`` that it completes or ends. One group a
    cycle.

    Source
    ------
    INCEPTIONN, section VI-A and figure 9.
    """

    def __init__(self, *, group: int = 8):
        self.config = Inceptionn(group=group)
        self.group = group
        width = FLOAT_BITS * group
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "bound": In(range(MAX_BOUND + 1)),
                "mode": In(Mode),
                "o": Out(packet_stream(width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect blocks, shifters and packer; all advance together when the packer takes their output."""
        m = Module()
        width, config = FLOAT_BITS * self.group, self.config
        m.submodules.packer = packer = BytePacker(width=width, max_bytes=config.max_group_bytes)
        m.submodules.skid = skid = SkidBuffer(shape=packet_layout(width))
        connect_typed(m, packer.o, skid.i)
        connect_typed(m, skid.o, wiring.flipped(self.o))
        enable = Signal()
        m.d.comb += [enable.eq(packer.i.ready), self.i.ready.eq(enable)]
        pipeline = Pipeline(m, enable)
        tags, values = self._blocks(m, enable)
        row, count = join(pipeline, tags, values)
        steps = COMPRESSION_LATENCY + shifter_latency(self.group)
        m.d.comb += [
            packer.i.valid.eq(pipeline.delay(self.i.valid, steps, name="valid", reset_less=False)),
            packer.i.p.last.eq(pipeline.delay(self.i.p.last, steps, name="last")),
            packer.i.p.data.eq(row),
            packer.i.p.count.eq(count),
        ]
        return m

    def _blocks(self, m: Module, enable: Signal) -> tuple[Any, list[Any]]:
        """Return the tags and the values of a beat."""
        blocks = [CompressionBlock() for _ in range(self.group)]
        for n, block in enumerate(blocks):
            m.submodules[f"block{n}"] = block
            m.d.comb += [
                block.i.eq(self.i.p.data.word_select(n, FLOAT_BITS)),
                block.keep.eq(self.i.p.keep.word_select(n, FLOAT_BITS // 8)),
                block.bound.eq(self.bound),
                block.mode.eq(self.mode),
                block.enable.eq(enable),
            ]
        return Cat(block.tag for block in blocks), [block.value for block in blocks]
