"""Local path: reads the node's own words from memory."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.bus.axi4 import AXI4ReadSignature
from fanin.hdl.bus.axi_reader import AxiReader
from fanin.hdl.ring.halves import HalfReader
from fanin.hdl.ring.lanes import own_layout
from fanin.hdl.ring.orders import Step, path_layout
from fanin.hdl.ring.words import BURST, FrameWords
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork
from fanin.ring.facts import RingConfig

WORDS, FRAMES = 512, 32  # maximum words and frames to read ahead, before ``memory_words`` is added


class LocalPath(wiring.Component):
    """Reader of the node's own frames, ahead of their use.

    Values beyond the vector's end are +0: words entirely beyond the end are not read, and lanes of the last
    word beyond the end are cleared.

    Members
    -------
    ``orders`` : In, stream of ``path_layout(…, "local")``
        Frames to read.
    ``o`` : Out, stream of :func:`own_layout`
        Words of these frames.
    ``axi`` : Out, :class:`AXI4ReadSignature`
        Memory port.
    ``stop`` : In, 1
        Stop issuing reads and drop the data that memory still delivers. Must stay high until ``busy`` falls; a
        reset of the path must follow.
    ``busy`` : Out, 1
        Memory still owes words; falls 2 cycles after the last one.
    ``error`` : Out, 1
        Memory answered with an error.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths and read-ahead.

    Latency
    -------
    7 cycles from an order to ``arvalid``; 1 cycle from ``axi`` to ``o``, with 16-bit values also those of
    :class:`HalfReader`. One word a cycle, within the limits of
    ``AxiReader`` with one command for each frame.

    Source
    ------
    docs/systems/ring.md, "The engine".
    """

    def __init__(self, *, config: RingConfig):
        self.config = config
        super().__init__(
            {
                "orders": In(stream.Signature(path_layout(config, "local"))),
                "o": Out(stream.Signature(own_layout(config.width))),
                "axi": Out(
                    AXI4ReadSignature(data_width=config.memory_width, address_width=config.address_width)
                ),
                "stop": In(1),
                "busy": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Split an order into a read command and the description of the frame's words."""
        m = Module()
        config = self.config
        m.submodules.reader = reader = AxiReader(
            data_width=config.memory_width,
            address_width=config.address_width,
            burst=BURST,
            fifo_depth=WORDS + config.memory_words,
        )
        frames = FRAMES + config.memory_words // config.frame_words
        m.submodules.words = words = FrameWords(config=config, depth=frames)
        m.submodules.fork = fork = StreamFork(shape=self.orders.payload.shape())
        connect_typed(m, flipped(self.orders), fork.i)
        connect_typed(m, reader.axi, flipped(self.axi))
        to_reader, to_words = fork.o
        order, word_bits = to_reader.payload, self.config.address_width - len(self.orders.payload.address)
        m.d.comb += [
            reader.command.valid.eq(to_reader.valid & ~self.stop),
            to_reader.ready.eq(reader.command.ready & ~self.stop),
            reader.command.payload.address.eq(Cat(Const(0, word_bits), order.address)),
            reader.command.payload.beats.eq(order.inside),
            reader.command.payload.repeats.eq(1),
            reader.stop.eq(self.stop),
            self.busy.eq(reader.busy),
            self.error.eq(reader.error),
            words.i.valid.eq(to_words.valid),
            to_words.ready.eq(words.i.ready),
            words.i.payload.tag.eq(to_words.payload.step != Step.LOCAL),
        ]
        m.d.comb += [words.i.payload[name].eq(to_words.payload[name]) for name in ("words", "inside", "lanes")]
        own = self._values(m, reader.o)
        word, mask = words.o.payload, Cat(bit.replicate(FLOAT_BITS) for bit in words.o.payload.mask)
        m.d.comb += [
            self.o.valid.eq(words.o.valid & (own.valid | ~word.inside) & ~self.stop),
            words.o.ready.eq(self.o.ready & (own.valid | ~word.inside) & ~self.stop),
            own.ready.eq(self.o.ready & words.o.valid & word.inside | self.stop),
            self.o.payload.data.eq(own.payload & mask),
            self.o.payload.last.eq(word.last),
            self.o.payload.add.eq(word.tag),
        ]
        return m

    def _values(self, m: Module, words: Any) -> Any:
        """Return the stream of memory's words in binary32."""
        if self.config.tensor is None:
            return words
        m.submodules.halves = halves = HalfReader(lanes=self.config.lanes, tensor=self.config.tensor)
        connect_typed(m, words, halves.i)
        return halves.o
