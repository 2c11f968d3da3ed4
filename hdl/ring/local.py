"""The local path: a node's own words, out of memory."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.bus.axi4 import AXI4ReadSignature
from fanin.hdl.bus.axi_reader import AxiReader
from fanin.hdl.ring.lanes import own_layout
from fanin.hdl.ring.orders import Step, path_layout
from fanin.hdl.ring.words import FrameWords
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork
from fanin.ring.facts import RingConfig

BURST = 16  # words of a burst at most
WORDS, FRAMES = 512, 32  # that are read ahead at most, without ``memory_words``


class LocalPath(wiring.Component):
    """Read the frames of its orders from memory, ahead of their use.

    What lies beyond the vector's end is +0: whole words, without being read, and lanes of its last word.

    Members
    -------
    ``orders`` : In, stream of ``path_layout(…, "local")``
    ``o`` : Out, stream of :func:`own_layout`
    ``axi`` : Out, :class:`AXI4ReadSignature`
    ``stop`` : In, 1
        Nothing more is asked of memory; what it still delivers is dropped. Held until ``busy`` falls; a reset
        of the path then makes it new.
    ``busy`` : Out, 1
        Words are under way from memory; true for 2 cycles beyond that.
    ``error`` : Out, 1
        Memory answered with an error.

    Parameters
    ----------
    ``config`` : RingConfig

    Latency
    -------
    7 cycles from an order to ``arvalid``; 1 cycle from ``axi`` to ``o``. One word a cycle, as far as
    ``AxiReader``, a command for each frame, has it.

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
                "axi": Out(AXI4ReadSignature(data_width=config.width, address_width=config.address_width)),
                "stop": In(1),
                "busy": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """An order goes to the reader as a command, and to the words' side as what to make of its words."""
        m = Module()
        config = self.config
        m.submodules.reader = reader = AxiReader(
            data_width=config.width,
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
        word, mask = words.o.payload, Cat(bit.replicate(FLOAT_BITS) for bit in words.o.payload.mask)
        m.d.comb += [
            self.o.valid.eq(words.o.valid & (reader.o.valid | ~word.inside) & ~self.stop),
            words.o.ready.eq(self.o.ready & (reader.o.valid | ~word.inside) & ~self.stop),
            reader.o.ready.eq(self.o.ready & words.o.valid & word.inside | self.stop),
            self.o.payload.data.eq(reader.o.payload & mask),
            self.o.payload.last.eq(word.last),
            self.o.payload.add.eq(word.tag),
        ]
        return m
