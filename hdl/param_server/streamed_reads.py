"""Words on their way to memory, given to who reads them there."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import CACHE_BUFFERABLE_MODIFIABLE, MAX_BURST, AXI4ReadSignature, Burst, Resp
from fanin.hdl.param_server.row import row_word_layout
from fanin.hdl.param_server.shapes import WORDS_BITS, streamed_layout
from fanin.hdl.rdma.tally import Tally
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import RdmaConfig

_BURSTS = 32  # that may be under way
_AHEAD_BITS = 16  # of how many words are asked for, but not in memory: more than any writer has under way


class Source(enum.Enum, shape=1):  # type: ignore[call-arg]
    """Where a burst's words come from."""

    STREAM = 0
    MEMORY = 1


class StreamedReads(wiring.Component):
    """Answer reads of a row from the stream that it is made of, and all other reads from memory.

    So the first packets of a push are made of words as they are computed, and no word of w is read twice. The
    stream goes to memory as well. A burst that begins where the last one of the row ended is answered from the
    stream, as soon as its words come; any other one, as of a packet that is sent again, from memory, once all
    is there that was asked for of the stream. When the reader asks for nothing of the row for ``patience``
    cycles, the rest of the row is let go, and read from memory if it is asked for.

    Members
    -------
    ``row`` : In, stream of :func:`~fanin.hdl.param_server.shapes.streamed_layout`
        Of which address on the stream's next row is read, and how long it is; with ``drop`` it is let go at
        once. Taken when the row before has been asked for to its end, or let go: from then on it may be read.
    ``i`` : In, stream of :func:`~fanin.hdl.param_server.row.row_word_layout`
        Rows, in their order.
    ``landed`` : In, range(257)
        So many words of the stream, in its order, are in memory now.
    ``nic`` : In, AXI4 read port
        One who reads whole words of a row in increasing order. ``rready`` must always be high.
    ``memory`` : Out, AXI4 read port
    ``let_go`` : Out, 1
        Pulse: the rest of a row is let go.

    Parameters
    ----------
    ``config`` : RdmaConfig
    ``depth`` : int, words
        That the stream may be ahead of the reader: at least a burst of who writes them to memory.
    ``patience`` : int, cycles; at least 1

    Latency
    -------
    A burst every 3 cycles. A word 2 cycles after it is on ``i``, 1 cycle after it is on ``memory``; one word a
    cycle.

    Source
    ------
    docs/systems/param-server.md, "Update and push in one pass".
    """

    def __init__(self, *, config: RdmaConfig, depth: int = 64, patience: int = 4096):
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        if patience < 1:
            raise ValueError(f"patience must be at least 1, not {patience!r}")
        self.config = config
        self.depth = depth
        self.patience = patience
        axi = AXI4ReadSignature(data_width=config.width, address_width=config.address_width)
        super().__init__(
            {
                "row": In(stream.Signature(streamed_layout(config))),
                "i": In(stream.Signature(row_word_layout(config.width))),
                "landed": In(range(MAX_BURST + 1)),
                "nic": In(axi),
                "memory": Out(axi),
                "let_go": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Addresses on one side, words on the other; between them the sources of the bursts in their order."""
        m = Module()
        # ``single``: of the stream, and but one word.
        turn = data.StructLayout({"source": Source, "length": len(self.nic.arlen), "single": 1})
        m.submodules.turns = turns = StreamFIFO(shape=turn, depth=_BURSTS)
        m.submodules.words = words = StreamFIFO(shape=self.i.payload.shape(), depth=self.depth)
        m.d.comb += [
            words.i.valid.eq(self.i.valid),
            words.i.payload.eq(self.i.payload),
            self.i.ready.eq(words.i.ready),
        ]
        self._open = Signal()  # the row may be read from the stream
        self._unwanted = Signal()  # it is to be thrown away
        self._dropping = Signal()  # what is left of the row is thrown away
        # Words asked for or thrown away, less those that landed, less one: the sign says that all have landed.
        self._ahead = Signal(signed(_AHEAD_BITS), init=-1)
        m.submodules.pending = self._pending = Tally(limit=_BURSTS)  # bursts of the stream under way
        self._addresses(m, turns.i)
        dropped = self._words(m, words.o, turns.o)
        self._count(m, dropped)
        self._let_go(m, words.o)
        return m

    def _addresses(self, m: Module, turns: Any) -> None:
        """Look where a burst lies; then it is the stream's next one, or waits until memory has all."""
        nic, row = self.nic, self.row
        step_bits = self._step_bits = (self.config.width // 8 - 1).bit_length()
        burst = Signal(
            data.StructLayout({"word": self.config.address_width - step_bits, "length": len(nic.arlen)})
        )
        next_word = Signal.like(burst.word)  # of the row, that was not asked for
        left = Signal(signed(WORDS_BITS + 1))  # words of the row that were not asked for, less one
        count = self._words_asked = Signal(len(nic.arlen) + 1)  # the burst's words
        is_single = Signal()
        is_next = Signal(3)  # its address is the row's next one: in each third
        # Both in the cycle behind their states, out of registers: the burst is still the same.
        decided = self._decided = Signal()  # where the burst's words come from
        asked = self._asked = Signal()  # of the stream
        looking = self._looking = Signal()  # at a burst that may be asked of the stream, or just was
        self._describe(m, turns, burst, is_single)
        m.d.sync += [decided.eq(0), asked.eq(0)]
        with m.FSM() as fsm:
            m.d.comb += looking.eq(fsm.ongoing("LOOK") | fsm.ongoing("DECIDE") | asked)
            with m.State("TAKE"):
                m.d.comb += nic.arready.eq(1)
                m.d.sync += [burst.word.eq(nic.araddr[step_bits:]), burst.length.eq(nic.arlen)]
                with m.If(nic.arvalid):
                    m.next = "LOOK"
            with m.State("LOOK"):
                third = -(-len(next_word) // len(is_next))
                m.d.sync += [
                    *(
                        bit.eq(burst.word.word_select(n, third) == next_word.word_select(n, third))
                        for n, bit in enumerate(is_next)
                    ),
                    is_single.eq(burst.length == 0),
                    count.eq(burst.length + 1),
                ]
                m.next = "DECIDE"
            with m.State("DECIDE"):
                with m.If(self._open & is_next.all()):
                    m.d.sync += [decided.eq(turns.ready), asked.eq(turns.ready)]
                    with m.If(turns.ready):
                        m.next = "TAKE"
                with m.Elif(~self._unwanted & ~self._dropping):
                    m.next = "WAIT"
            self._ask_memory(m, turns)
        with m.If(asked):
            m.d.sync += [next_word.eq(next_word + count), left.eq(left - count)]
        with m.If(self._open & (left < 0)):  # long before the next burst
            m.d.sync += self._open.eq(0)
        with m.If(row.valid & row.ready):
            m.d.sync += [next_word.eq(row.payload.address[step_bits:]), left.eq(row.payload.words - 1)]

    def _describe(self, m: Module, turns: Any, burst: Any, is_single: Signal) -> None:
        """The burst, for who hands its words on and for memory."""
        memory, step_bits = self.memory, self._step_bits
        m.d.comb += [
            turns.valid.eq(self._decided),
            turns.payload.source.eq(Mux(self._asked, Source.STREAM, Source.MEMORY)),
            turns.payload.length.eq(burst.length),
            turns.payload.single.eq(self._asked & is_single),
            memory.araddr[step_bits:].eq(burst.word),
            memory.arlen.eq(burst.length),
            memory.arsize.eq(step_bits),
            memory.arburst.eq(Burst.INCR),
            memory.arcache.eq(CACHE_BUFFERABLE_MODIFIABLE),
        ]

    def _ask_memory(self, m: Module, turns: Any) -> None:
        """States of a burst that the stream does not answer."""
        memory = self.memory
        with m.State("WAIT"), m.If((self._ahead < 0) & ~self._pending.some & turns.ready):
            m.d.sync += [self._decided.eq(1), memory.arvalid.eq(1)]
            m.next = "ASK"
        with m.State("ASK"), m.If(memory.arready):
            m.d.sync += memory.arvalid.eq(0)
            m.next = "TAKE"

    def _words(self, m: Module, words: Any, turns: Any) -> Any:
        """Hand on the oldest burst's words; whether one is thrown away instead."""
        nic, memory = self.nic, self.memory
        next_beat = Signal.like(turns.payload.length, init=1)
        later_ends = Signal()  # this one is the burst's last, but not its first
        from_stream = turns.valid & (turns.payload.source == Source.STREAM)
        streamed = Signal()
        ends = Signal()  # the stream's burst, if one is in turn
        m.d.comb += [
            streamed.eq(from_stream & words.valid),
            memory.rready.eq(1),  # a burst of memory waits until none of the stream is under way
            words.ready.eq(from_stream | self._dropping),
            ends.eq(later_ends | turns.payload.single),
            turns.ready.eq(words.valid & ends | memory.rvalid & memory.rlast),
            self._pending.down.eq(streamed & ends),
        ]
        m.d.sync += [
            nic.rvalid.eq(streamed | memory.rvalid),
            nic.rdata.eq(Mux(streamed, words.payload.data, memory.rdata)),
            nic.rresp.eq(Mux(streamed, Resp.OKAY, memory.rresp)),
            nic.rlast.eq(Mux(streamed, ends, memory.rlast)),
        ]
        with m.If(streamed):
            m.d.sync += [
                later_ends.eq(~ends & (next_beat == turns.payload.length)),
                next_beat.eq(Mux(ends, 1, next_beat + 1)),
            ]
        return self._dropping & words.valid

    def _count(self, m: Module, dropped: Any) -> None:
        """One addition at a time: what is asked for counts 3 cycles later, when no burst can wait yet."""
        change = Signal(signed(len(self.landed) + 1))
        m.d.comb += self._pending.up.eq(self._asked)
        m.d.sync += [
            change.eq(Mux(self._asked, self._words_asked, dropped) - self.landed),
            self._ahead.eq(self._ahead + change),
        ]

    def _let_go(self, m: Module, words: Any) -> None:
        """Give a row up that is to be dropped or that nothing is asked of, when all asked for has left."""
        row = self.row
        unwanted = self._unwanted
        left = Signal(signed((self.patience - 1).bit_length() + 1))  # cycles, less two: the sign tells
        # Not while a burst is compared with the row before.
        m.d.comb += row.ready.eq(~self._open & ~unwanted & ~self._dropping & ~self._looking)
        with m.If(row.valid & row.ready):
            m.d.sync += [self._open.eq(~row.payload.drop), unwanted.eq(row.payload.drop)]
        m.d.sync += left.eq(left - 1)
        with m.If(~self._open | self._pending.some):
            m.d.sync += left.eq(self.patience - 2)
        with m.Elif((left < 0) & ~self._looking):
            m.d.comb += self.let_go.eq(1)
            m.d.sync += [self._open.eq(0), unwanted.eq(1)]
        with m.If(unwanted & ~self._pending.some):
            m.d.sync += [self._dropping.eq(1), unwanted.eq(0)]
        with m.If(self._dropping & words.valid & words.payload.last):
            m.d.sync += self._dropping.eq(0)
