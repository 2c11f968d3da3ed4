"""The NIC's reads of a row, answered from the stream of words that is on its way to memory."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import CACHE_BUFFERABLE_MODIFIABLE, MAX_BURST, AXI4ReadSignature, Burst, Resp
from fanin.hdl.param_server.row import row_word_layout
from fanin.hdl.param_server.shapes import WORDS_BITS, streamed_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import RdmaConfig

_BURSTS = 32  # that may be in flight
_UNLANDED_BITS = 16  # of a number of words on their way to memory: more than any writer has in flight


class Source(enum.Enum, shape=1):  # type: ignore[call-arg]
    """Where a burst's words come from."""

    STREAM = 0
    MEMORY = 1


def _source_layout() -> data.StructLayout:
    """A burst in flight: whose words it gets, their number less one; ``single``: one word of the stream."""
    return data.StructLayout({"source": Source, "length": (MAX_BURST - 1).bit_length(), "single": 1})


class _Row:
    """The stream's row: which of its words were not asked for, and whether they may be."""

    def __init__(self, config: RdmaConfig):
        step_bits = (config.width // 8 - 1).bit_length()
        self.open = Signal()
        self.closing = Signal()  # it was given up: hits in flight still get their words
        self.discarding = Signal()  # its other words are thrown away
        self.next_word = Signal(config.address_width - step_bits)  # the address, in words
        self.left = Signal(signed(WORDS_BITS + 1))  # words from there on


class _Burst:
    """The burst that the NIC asks for."""

    def __init__(self, config: RdmaConfig):
        step_bits = (config.width // 8 - 1).bit_length()
        self.word = Signal(config.address_width - step_bits)
        self.length = Signal((MAX_BURST - 1).bit_length())  # words, less one
        self.compared = Signal()  # it is compared with the row, or is a hit that the row does not know of yet
        self.issued = Signal()  # in the cycle after the decision
        self.is_hit = Signal()  # it was issued to the stream


class StreamedReads(wiring.Component):
    """Answer reads of a row from the stream that it is made of, and all other reads from memory.

    So the first packets of a push are made of words as they are computed, and no word of w is read twice. The
    stream goes to memory as well. A burst that begins where the row's last one ended is answered from the
    stream, as soon as its words come. Any other burst, as of a packet that is sent again, is answered from
    memory, once all words that were asked for before it are there. When nothing of the row is asked for during
    ``patience`` cycles, the rest of the row is let go: discarded from the stream, and read from memory when it
    is asked for.

    Members
    -------
    ``row`` : In, stream of :func:`~fanin.hdl.param_server.shapes.streamed_layout`
        From which address on the stream's next row is read, and how long it is; with ``drop`` it is let go at
        once. Taken when the row before has been asked for to its end, or let go: from then on it may be read.
    ``i`` : In, stream of :func:`~fanin.hdl.param_server.row.row_word_layout`
        Rows, in their order.
    ``landed`` : In, range(257)
        So many words more of the stream, in its order, are in memory.
    ``nic`` : In, AXI4 read port
        Reads whole words of a row in increasing order. ``rready`` must always be high.
    ``memory`` : Out, AXI4 read port
    ``let_go`` : Out, 1
        Pulse: the rest of a row is let go.

    Parameters
    ----------
    ``config`` : RdmaConfig
    ``depth`` : int, words
        That the stream may be ahead of the reader: at least a burst of the writer to memory.
    ``patience`` : int, cycles; at least 1

    Latency
    -------
    A burst every 3 cycles. A word 2 cycles after it is on ``i``, 1 cycle after it is on ``memory``; one word a
    cycle.

    Source
    ------
    docs/systems/param-server-hardware.md, "Update and push in one pass".
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
        """Addresses on one side, words on the other; between them a queue of the sources of the bursts in
        flight.

        A burst that is the next one of the *open* row is a hit, any other a miss. A miss goes to memory when no
        hit is in flight, which keeps the order of the words, and when every word asked for has landed. A row
        that is given up is *closing* until the hits in flight have their words, then *discarding*: its words
        are thrown away up to its last.
        """
        m = Module()
        m.submodules.sources = sources = StreamFIFO(shape=_source_layout(), depth=_BURSTS)
        m.submodules.words = words = StreamFIFO(shape=self.i.payload.shape(), depth=self.depth)
        connect_typed(m, flipped(self.i), words.i)
        m.submodules.hits = hits = Credits(limit=_BURSTS)  # bursts of the stream in flight
        row = _Row(self.config)
        burst = _Burst(self.config)
        unlanded = Signal(signed(_UNLANDED_BITS))  # words asked for or discarded, less those that landed
        self._addresses(m, row, burst, sources.i, hits, unlanded)
        self._words(m, row, words.o, sources.o, hits)
        self._count(m, burst, row.discarding & words.o.valid, unlanded)
        self._change_row(m, row, burst, words.o, hits)
        m.d.comb += hits.give.eq(burst.is_hit)
        return m

    def _addresses(
        self, m: Module, row: _Row, burst: _Burst, sources: Any, hits: Credits, unlanded: Signal
    ) -> None:
        """Take a burst, compare it with the open row, and issue it to the stream or to memory."""
        nic, memory = self.nic, self.memory
        step_bits = (self.config.width // 8 - 1).bit_length()
        is_next = Signal()
        m.d.comb += [
            sources.valid.eq(burst.issued),
            sources.payload.source.eq(Mux(burst.is_hit, Source.STREAM, Source.MEMORY)),
            sources.payload.length.eq(burst.length),
            sources.payload.single.eq(burst.is_hit & (burst.length == 0)),
            memory.araddr[step_bits:].eq(burst.word),
            memory.arlen.eq(burst.length),
            memory.arsize.eq(step_bits),
            memory.arburst.eq(Burst.INCR),
            memory.arcache.eq(CACHE_BUFFERABLE_MODIFIABLE),
        ]
        m.d.sync += [burst.issued.eq(0), burst.is_hit.eq(0)]
        with m.FSM() as fsm:
            m.d.comb += burst.compared.eq(fsm.ongoing("COMPARE") | fsm.ongoing("DECIDE") | burst.is_hit)
            with m.State("TAKE"):
                m.d.comb += nic.arready.eq(1)
                m.d.sync += [burst.word.eq(nic.araddr[step_bits:]), burst.length.eq(nic.arlen)]
                with m.If(nic.arvalid):
                    m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += is_next.eq(burst.word == row.next_word)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                with m.If(row.open & is_next):
                    m.d.sync += [burst.issued.eq(sources.ready), burst.is_hit.eq(sources.ready)]
                    with m.If(sources.ready):
                        m.next = "TAKE"
                with m.Elif(~row.closing & ~row.discarding):  # else it may be of the words to be discarded
                    m.next = "WAIT"
            with m.State("WAIT"), m.If((unlanded <= 0) & ~hits.ok & sources.ready):
                m.d.sync += [burst.issued.eq(1), memory.arvalid.eq(1)]
                m.next = "MEMORY"
            with m.State("MEMORY"), m.If(memory.arready):
                m.d.sync += memory.arvalid.eq(0)
                m.next = "TAKE"

    def _words(self, m: Module, row: _Row, words: Any, sources: Any, hits: Credits) -> None:
        """Hand on the words of the oldest burst, from the stream or from memory."""
        nic, memory = self.nic, self.memory
        next_beat = Signal.like(sources.payload.length, init=1)
        is_last_beat = Signal()  # this beat is the burst's last, but not its first
        from_stream = sources.valid & (sources.payload.source == Source.STREAM)
        streamed = Signal()
        ends = Signal()  # a burst of the stream
        m.d.comb += [
            streamed.eq(from_stream & words.valid),
            memory.rready.eq(1),  # a miss is issued when no hit is in flight: its words meet none of the stream
            words.ready.eq(from_stream | row.discarding),
            ends.eq(is_last_beat | sources.payload.single),
            sources.ready.eq(words.valid & ends | memory.rvalid & memory.rlast),
            hits.take.eq(streamed & ends),
        ]
        m.d.sync += [
            nic.rvalid.eq(streamed | memory.rvalid),
            nic.rdata.eq(Mux(streamed, words.payload.data, memory.rdata)),
            nic.rresp.eq(Mux(streamed, Resp.OKAY, memory.rresp)),
            nic.rlast.eq(Mux(streamed, ends, memory.rlast)),
        ]
        with m.If(streamed):
            m.d.sync += [
                is_last_beat.eq(~ends & (next_beat == sources.payload.length)),
                next_beat.eq(Mux(ends, 1, next_beat + 1)),
            ]

    def _count(self, m: Module, burst: _Burst, discarded: Any, unlanded: Signal) -> None:
        """Two sums, two registers: a hit counts 3 cycles after DECIDE, before the next burst can be in WAIT."""
        change = Signal(signed(len(self.landed) + 1))
        m.d.sync += [
            change.eq(Mux(burst.is_hit, burst.length + 1, discarded) - self.landed),
            unlanded.eq(unlanded + change),
        ]

    def _change_row(self, m: Module, row: _Row, burst: _Burst, words: Any, hits: Credits) -> None:
        """Open the next row, advance it by a hit, close it at its end or when it is given up."""
        given = self.row
        step_bits = (self.config.width // 8 - 1).bit_length()
        patience = Signal(range(self.patience), init=self.patience - 1)  # cycles that are left of it
        # A burst is not to be compared with one row and decided with another.
        m.d.comb += given.ready.eq(~row.open & ~row.closing & ~row.discarding & ~burst.compared)
        with m.If(burst.is_hit):
            m.d.sync += [
                row.next_word.eq(row.next_word + burst.length + 1),
                row.left.eq(row.left - burst.length - 1),
            ]
        with m.If(row.left <= 0):
            m.d.sync += row.open.eq(0)
        with m.If(given.valid & given.ready):
            m.d.sync += [
                row.next_word.eq(given.payload.address[step_bits:]),
                row.left.eq(given.payload.words),
                row.open.eq(~given.payload.drop),
                row.closing.eq(given.payload.drop),
            ]
        with m.If(~row.open | hits.ok):
            m.d.sync += patience.eq(self.patience - 1)
        with m.Elif(patience != 0):
            m.d.sync += patience.eq(patience - 1)
        with m.Elif(~burst.compared):
            m.d.comb += self.let_go.eq(1)
            m.d.sync += [row.open.eq(0), row.closing.eq(1)]
        with m.If(row.closing & ~hits.ok):
            m.d.sync += [row.discarding.eq(1), row.closing.eq(0)]
        with m.If(row.discarding & words.valid & words.payload.last):
            m.d.sync += row.discarding.eq(0)
