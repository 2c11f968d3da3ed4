"""Decompressor of frames of gradients."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import FLOAT_BITS, TAG_BITS, Inceptionn
from fanin.hdl.arith.delay import Pipeline
from fanin.hdl.codec.inceptionn.block import DECOMPRESSION_LATENCY, DecompressionBlock
from fanin.hdl.codec.inceptionn.cutter import GroupCutter
from fanin.hdl.codec.inceptionn.shapes import LENGTH_BITS
from fanin.hdl.codec.inceptionn.shifter import separate, shifter_latency
from fanin.hdl.stream.buffer import SkidBuffer
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.lanes import ones_through
from fanin.hdl.stream.packet import packet_layout, packet_stream


class InceptionnDecompressor(wiring.Component):
    """Decompressor of frames, a beat of ``group`` values a cycle.

    Every frame on ``i`` becomes a frame of exactly ``length`` bytes, in either mode and with any bound. If the
    compressed frame ends early, the incomplete group and all later ones are zeros, and the last beat has
    ``error``. Data after the last group are dropped up to the frame's ``last``. An error does not affect the
    next frame.

    Members
    -------
    ``length`` : In, stream(32)
        Decompressed bytes of a frame, at least 1; one length for each frame on ``i``, before or after it.
    ``i`` : In, packet stream of 32 · ``group`` bits
        Compressed frames.
    ``o`` : Out, packet stream of 32 · ``group`` bits with ``error``
        Decompressed frames.

    Parameters
    ----------
    ``group`` : int
        Values of a group: 8 or 16. Default 8.

    Latency
    -------
    From the beat on ``i`` in which a group begins to its values on ``o``: 10 cycles (``group`` 16: 12), if the
    next beat comes a cycle later or the frame ends with that beat, and ``length`` comes no later. One more for
    a group that extends into a third beat. One group a cycle, across frames.

    Together with a compressor before it, from values to values: 16 cycles (``group`` 16: 19), and one more for
    the group after which the compressor's ``i`` waits.

    Source
    ------
    INCEPTIONN, section VI-A and figure 10.
    """

    def __init__(self, *, group: int = 8):
        self.config = Inceptionn(group=group)
        self.group = group
        width = FLOAT_BITS * group
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width, error=True)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect cutter, shifters and blocks; all registers after the cutter advance together with ``o``."""
        m = Module()
        width = FLOAT_BITS * self.group
        m.submodules.cutter = cutter = GroupCutter(group=self.group)
        m.submodules.skid = skid = SkidBuffer(shape=packet_layout(width, error=True))
        connect_typed(m, wiring.flipped(self.length), cutter.length)
        connect_typed(m, wiring.flipped(self.i), cutter.i)
        connect_typed(m, skid.o, wiring.flipped(self.o))
        pipeline = Pipeline(m, skid.i.ready)
        groups = cutter.o
        tags, values = separate(pipeline, groups.p.tags, groups.p.data, groups.p.low_bytes)
        outputs = []
        for n, value in enumerate(values):
            m.submodules[f"block{n}"] = block = DecompressionBlock()
            m.d.comb += [
                block.tag.eq(tags.word_select(n, TAG_BITS)),
                block.value.eq(value),
                block.enable.eq(skid.i.ready),
            ]
            outputs.append(block.o)
        steps = shifter_latency(self.group) + DECOMPRESSION_LATENCY
        last = pipeline.delay(groups.p.last, steps - 1, name="last")
        tail = pipeline.delay(groups.p.tail, steps - 1, name="tail")
        keep = Mux(last, ones_through(tail, width // 8), -1)
        m.d.comb += [
            groups.ready.eq(skid.i.ready),
            skid.i.valid.eq(pipeline.delay(groups.valid, steps, name="valid", reset_less=False)),
            skid.i.p.data.eq(Cat(outputs)),
            skid.i.p.keep.eq(pipeline.register(keep, name="o_keep")),
            skid.i.p.last.eq(pipeline.register(last, name="o_last")),
            skid.i.p.error.eq(pipeline.delay(groups.p.last & groups.p.missing, steps, name="error")),
        ]
        return m
