"""Words of a frame: stream layouts, and the part of a frame inside the vector."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.ring.facts import RingConfig

BURST = 16  # longest burst to and from memory, in words


def word_layout(width: int) -> data.StructLayout:
    """Return the layout of a word; ``last`` marks its frame's last word."""
    return data.StructLayout({"data": width, "last": 1})


def frame_layout(config: RingConfig, tag_bits: int = 1) -> data.StructLayout:
    """Return the layout that describes a frame.

    ``words``: words of the frame, at least 1.
    ``inside``: words of the frame inside the vector, 0 to ``words``.
    ``lanes``: values of the last word inside the vector; 0 means all.
    ``tag``: ``tag_bits`` bits for the user.
    """
    counter = range(config.frame_words + 1)
    lane_bits = (config.lanes - 1).bit_length()
    return data.StructLayout({"words": counter, "inside": counter, "lanes": lane_bits, "tag": tag_bits})


class FrameWords(wiring.Component):
    """Expander of a frame's description into one entry for each word: inside the vector or beyond it.

    Members
    -------
    ``i`` : In, stream of :func:`frame_layout`
        Frames.
    ``o`` : Out, stream of ``inside``, ``mask``, ``last`` and ``tag``
        Words of the frames. ``inside``: the word is inside the vector. ``mask``: one bit for each lane inside.
        ``last``: the word is its frame's last. ``tag``: the frame's tag.

    Parameters
    ----------
    ``config`` : RingConfig
        Lanes and frame size.
    ``depth`` : int
        Frames that may be queued, at least 1. Default 2.
    ``tag_bits`` : int
        Bits of the tag. Default 1.

    Latency
    -------
    3 cycles; one word a cycle, across frames.

    Source
    ------
    docs/systems/ring.md, "The engine".
    """

    def __init__(self, *, config: RingConfig, depth: int = 2, tag_bits: int = 1):
        self.config = config
        self.depth = depth
        self.tag_bits = tag_bits
        words = data.StructLayout({"inside": 1, "mask": config.lanes, "last": 1, "tag": tag_bits})
        frames = stream.Signature(frame_layout(config, tag_bits))
        super().__init__({"i": In(frames), "o": Out(stream.Signature(words))})

    def elaborate(self, platform: Any) -> Module:
        """Count down the frame's words, and its words inside the vector.

        Each counter holds the remaining words less the current word and one more. It is negative at the last
        word, so its sign bit says "last" without a comparison.
        """
        m = Module()
        m.submodules.frames = frames = StreamFIFO(shape=self.i.payload.shape(), depth=self.depth)
        connect_typed(m, flipped(self.i), frames.i)
        m.submodules.output = output = RegisterSlice(shape=self.o.payload.shape())
        connect_typed(m, output.o, flipped(self.o))
        frame, word = frames.o.payload, output.i.payload
        is_inside = Signal()
        tag = Signal(self.tag_bits)
        words_left = Signal(signed(len(frame.words) + 1))  # words after the current one, less 1
        inside_left = Signal.like(words_left)  # words inside the vector after the current one, less 1
        is_last, is_last_inside = words_left[-1], inside_left[-1]  # sign bits
        valid = Signal()
        end = Signal(self.config.lanes)  # mask of the last word inside
        load = Signal()
        m.d.comb += [
            load.eq(~valid | output.i.ready & is_last),
            frames.o.ready.eq(load),
            output.i.valid.eq(valid),
            word.inside.eq(is_inside),
            # All lanes, but only those of ``end`` in the last word inside, and none after it.
            word.mask.eq((end | ~is_last_inside.replicate(len(end))) & is_inside.replicate(len(end))),
            word.last.eq(is_last),
            word.tag.eq(tag),
        ]
        with m.If(load):
            m.d.sync += [valid.eq(frames.o.valid), is_inside.eq(frame.inside != 0)]
            # 2: the current word, and 1 so that the counter is negative at the last word
            m.d.sync += [words_left.eq(frame.words - 2), inside_left.eq(frame.inside - 2)]
            m.d.sync += [end.eq(Mux(frame.lanes == 0, -1, (1 << frame.lanes) - 1)), tag.eq(frame.tag)]
        with m.Elif(output.i.ready):
            m.d.sync += [
                words_left.eq(words_left - 1),
                inside_left.eq(inside_left - 1),
                is_inside.eq(is_inside & ~is_last_inside),
            ]
        return m
