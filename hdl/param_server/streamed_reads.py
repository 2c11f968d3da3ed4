"""Read port of the NIC, served from the stream of words that is also written to memory."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import CACHE_BUFFERABLE_MODIFIABLE, MAX_BURST, AXI4ReadSignature, Burst, Resp
from fanin.hdl.param_server.row import row_word_layout
from fanin.hdl.param_server.shapes import WORDS_BITS, streamed_layout
from fanin.hdl.rdma.shapes import lane_bits
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma.facts import RdmaConfig

BURSTS = 32  # bursts that may be in flight
_UNLANDED_BITS = 16  # bits of a number of words written and not landed; more than any writer has in flight


class Source(enum.Enum, shape=1):  # type: ignore[call-arg]
    """Source of a burst's words."""

    STREAM = 0
    MEMORY = 1


def _source_layout() -> data.StructLayout:
    """Return the layout of a burst in flight.

    ``source``: source of its words.
    ``length``: number of its words, less 1.
    ``single``: it is a hit of one word.
    """
    return data.StructLayout({"source": Source, "length": (MAX_BURST - 1).bit_length(), "single": 1})


class _Row:
    """Row on the stream. At most one of the three flags is 1; if none is, the next row may begin."""

    def __init__(self, address_bits: int):
        self.open = Signal()  # reads may hit its words
        self.letting_go = Signal()  # reads can no longer hit; hits in flight still get their words
        self.discarding = Signal()  # its words are taken from the stream and dropped, including the last
        self.next_word = Signal(address_bits)  # address of the first word not requested yet, in words
        self.words_left = Signal(signed(WORDS_BITS + 1))  # words not requested yet; hits count a cycle late


class _Burst:
    """State of the NIC's current burst."""

    def __init__(self, address_bits: int):
        self.first_word = Signal(address_bits)  # address of its first word, in words
        self.length = Signal((MAX_BURST - 1).bit_length())  # its beats less 1, as on AXI
        self.beats = Signal(MAX_BURST.bit_length())  # its beats; valid from DECIDE on
        self.issued = Signal()  # pulse: it enters the queue of bursts in flight
        self.is_hit = Signal()  # with ``issued``: 1 if its words come from the stream, 0 if from memory
        # The row must not change while the burst is compared with it, or is a hit not counted yet.
        self.locks_row = Signal()


class StreamedReads(wiring.Component):
    """Read port of the NIC that serves a row from the stream of its words, and all other reads from memory.

    The first packets of a push thus consist of words as they are computed, and no word of w is read twice. The
    stream also goes to memory.

    A burst that begins where the row's last burst ended is a *hit*: the stream serves it as its words arrive.
    Any other burst, such as that of a retransmitted packet, is a *miss*: memory serves it, after all words
    requested before have landed there. After ``patience`` cycles without a read of the row, the rest of the row
    is *let go*: dropped from the stream, and read from memory on request.

    With ``bypass`` all words of the stream are dropped, and memory serves every burst immediately.

    Members
    -------
    ``bypass`` : In, 1
        No row is announced on ``row``, and every read row has landed. Stable while anything is in flight.
    ``row`` : In, stream of :func:`~fanin.hdl.param_server.shapes.streamed_layout`
        Address and length of the stream's next row; with ``memory_only`` the row is let go immediately. Taken
        after all words of the previous row were requested or dropped. The row may be read from then on.
    ``i`` : In, stream of :func:`~fanin.hdl.param_server.row.row_word_layout`
        Words of the rows, in order.
    ``landed`` : In, range(257)
        Number of additional stream words, in order, that are now in memory.
    ``nic`` : In, AXI4 read port
        Reads of whole words of a row in increasing order. ``rready`` must always be high.
    ``memory`` : Out, AXI4 read port
        Reads of misses.
    ``let_go`` : Out, 1
        Pulse: the rest of a row is let go because ``patience`` has expired.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Data and address width.
    ``depth`` : int
        Words that the stream may be ahead of the reader. Default 64. The parent must give at least a burst of
        the memory writer; the component checks only that ``depth`` is at least 1.
    ``patience`` : int
        Cycles, at least 1, without a read of the row requested or in flight before its rest is let go. Default
        4096.

    Latency
    -------
    A burst every 3 cycles. A word leaves 2 cycles after it is on ``i``, or 1 cycle after it is on ``memory``;
    one word a cycle.

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
        self.lane_bits = lane_bits(config.width)  # address bits within a word
        axi = AXI4ReadSignature(data_width=config.width, address_width=config.address_width)
        super().__init__(
            {
                "bypass": In(1),
                "row": In(stream.Signature(streamed_layout(config))),
                "i": In(stream.Signature(row_word_layout(config.width))),
                "landed": In(range(MAX_BURST + 1)),
                "nic": In(axi),
                "memory": Out(axi),
                "let_go": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Handle addresses and words separately; a queue between them holds the sources of bursts in flight.

        States of a burst. 1+: one cycle, or longer while waiting::

            state     cycles   what it does                                     next
            TAKE      1+       takes a burst of the NIC                         COMPARE
            COMPARE   1        compares its address with ``row.next_word``      DECIDE
            DECIDE    1+       issues a hit, when the queue has a place         TAKE
                               keeps a miss until no row is let go or dropped   WAIT
            WAIT      1+       waits for the end of hits in flight, to keep     MEMORY
                               the order of words, and until all words that
                               were requested or dropped have landed
            MEMORY    1+       issues the burst to memory                       TAKE

        States of the stream's row (the flags of :class:`_Row`)::

            state        ends when                                      next
            none         a row arrives on ``row``                       open; with ``memory_only`` letting_go
            open         all of its words have been requested,          none
                         or ``patience`` has expired                    letting_go
            letting_go   no hit is in flight                            discarding
            discarding   its last word is dropped                       none
        """
        m = Module()
        m.submodules.sources = sources = StreamFIFO(shape=_source_layout(), depth=BURSTS)
        m.submodules.stream_fifo = stream_fifo = StreamFIFO(shape=self.i.payload.shape(), depth=self.depth)
        connect_typed(m, flipped(self.i), stream_fifo.i)
        # Used as a counter: each issued hit gives a credit, and its end takes it.
        m.submodules.hits = hits = Credits(limit=BURSTS)
        hit_in_flight = hits.ok  # a hit was issued, and not all of its words have been delivered
        row = _Row(self.config.address_width - self.lane_bits)
        burst = _Burst(self.config.address_width - self.lane_bits)
        # Words requested from the stream or dropped, minus words that landed. Negative while words have landed
        # that no burst has requested.
        unlanded = Signal(signed(_UNLANDED_BITS))
        self._take_bursts(m, row, burst, sources.i, hit_in_flight, unlanded)
        hit_ends = self._hand_on(m, row, stream_fifo.o, sources.o)
        self._count(m, burst, (row.discarding | self.bypass) & stream_fifo.o.valid, unlanded)
        self._change_row(m, row, burst, stream_fifo.o, hit_in_flight)
        m.d.comb += [hits.give.eq(burst.is_hit), hits.take.eq(hit_ends)]
        return m

    def _take_bursts(
        self, m: Module, row: _Row, burst: _Burst, sources: Any, hit_in_flight: Value, unlanded: Signal
    ) -> None:
        """Take a burst, compare it with the open row, and issue it to the stream or to memory."""
        nic, memory = self.nic, self.memory
        is_next = Signal()
        m.d.comb += [
            sources.valid.eq(burst.issued),
            sources.payload.source.eq(Mux(burst.is_hit, Source.STREAM, Source.MEMORY)),
            sources.payload.length.eq(burst.length),
            sources.payload.single.eq(burst.is_hit & (burst.length == 0)),
            memory.araddr[self.lane_bits :].eq(burst.first_word),
            memory.arlen.eq(burst.length),
            memory.arsize.eq(self.lane_bits),
            memory.arburst.eq(Burst.INCR),
            memory.arcache.eq(CACHE_BUFFERABLE_MODIFIABLE),
        ]
        m.d.sync += [burst.issued.eq(0), burst.is_hit.eq(0)]
        with m.FSM() as fsm:
            m.d.comb += burst.locks_row.eq(fsm.ongoing("COMPARE") | fsm.ongoing("DECIDE") | burst.is_hit)
            with m.State("TAKE"):
                m.d.comb += nic.arready.eq(1)
                m.d.sync += [burst.first_word.eq(nic.araddr[self.lane_bits :]), burst.length.eq(nic.arlen)]
                with m.If(nic.arvalid):
                    m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += [is_next.eq(burst.first_word == row.next_word), burst.beats.eq(burst.length + 1)]
                m.next = "DECIDE"
            with m.State("DECIDE"):
                with m.If(row.open & is_next):
                    m.d.sync += [burst.issued.eq(sources.ready), burst.is_hit.eq(sources.ready)]
                    with m.If(sources.ready):
                        m.next = "TAKE"
                # Words not dropped yet may belong to the burst and are not included in ``unlanded`` so far.
                with m.Elif(~row.letting_go & ~row.discarding):
                    m.next = "WAIT"
            with m.State("WAIT"), m.If((self.bypass | (unlanded <= 0)) & ~hit_in_flight & sources.ready):
                m.d.sync += [burst.issued.eq(1), memory.arvalid.eq(1)]
                m.next = "MEMORY"
            with m.State("MEMORY"), m.If(memory.arready):
                m.d.sync += memory.arvalid.eq(0)
                m.next = "TAKE"

    def _hand_on(self, m: Module, row: _Row, streamed: Any, sources: Any) -> Value:
        """Deliver the words of the oldest burst, from the stream or from memory.

        Return a signal that is 1 in the cycle in which a hit's last word is delivered.
        """
        nic, memory = self.nic, self.memory
        oldest_is_hit = sources.valid & (sources.payload.source == Source.STREAM)
        hands_on = Signal()  # the next word of a hit is delivered from the stream
        is_last = Signal()  # that word is the last of the hit
        next_is_last = Signal()  # the next beat is the last of a hit of several beats; registered
        beat_after = Signal.like(sources.payload.length, init=1)  # number of the beat after the next, from 0
        m.d.comb += [
            hands_on.eq(oldest_is_hit & streamed.valid),
            memory.rready.eq(1),  # words of hits and misses never collide: no hit is in flight with a miss
            streamed.ready.eq(oldest_is_hit | row.discarding | self.bypass),
            is_last.eq(next_is_last | sources.payload.single),
            sources.ready.eq(streamed.valid & is_last | memory.rvalid & memory.rlast),
        ]
        m.d.sync += [
            nic.rvalid.eq(hands_on | memory.rvalid),
            nic.rdata.eq(Mux(hands_on, streamed.payload.data, memory.rdata)),
            nic.rresp.eq(Mux(hands_on, Resp.OKAY, memory.rresp)),
            nic.rlast.eq(Mux(hands_on, is_last, memory.rlast)),
        ]
        with m.If(hands_on):
            m.d.sync += [
                next_is_last.eq(~is_last & (beat_after == sources.payload.length)),
                beat_after.eq(Mux(is_last, 1, beat_after + 1)),
            ]
        return hands_on & is_last

    def _count(self, m: Module, burst: _Burst, discarded: Any, unlanded: Signal) -> None:
        """Count ``unlanded`` in two registered sums; ``discarded``: a word is dropped from the stream.

        A hit is counted 3 cycles after DECIDE, before the next burst can be in WAIT.
        """
        change = Signal(signed(len(self.landed) + 1))
        m.d.sync += [
            change.eq(Mux(burst.is_hit, burst.beats, discarded) - self.landed),
            unlanded.eq(unlanded + change),
        ]

    def _change_row(self, m: Module, row: _Row, burst: _Burst, streamed: Any, hit_in_flight: Value) -> None:
        """Open the next row, advance it by each hit, and end it after its last word or when it is let go."""
        new_row = self.row
        patience_left = Signal(range(self.patience), init=self.patience - 1)  # cycles, less 1
        # A burst must be compared and decided with the same row.
        m.d.comb += new_row.ready.eq(~row.open & ~row.letting_go & ~row.discarding & ~burst.locks_row)
        with m.If(burst.is_hit):
            m.d.sync += [
                row.next_word.eq(row.next_word + burst.beats),
                row.words_left.eq(row.words_left - burst.beats),
            ]
        with m.If(row.words_left <= 0):
            m.d.sync += row.open.eq(0)
        with m.If(new_row.valid & new_row.ready):
            m.d.sync += [
                row.next_word.eq(new_row.payload.address[self.lane_bits :]),
                row.words_left.eq(new_row.payload.words),
                row.open.eq(~new_row.payload.memory_only),
                row.letting_go.eq(new_row.payload.memory_only),
            ]
        with m.If(~row.open | hit_in_flight):
            m.d.sync += patience_left.eq(self.patience - 1)
        with m.Elif(patience_left != 0):
            m.d.sync += patience_left.eq(patience_left - 1)
        with m.Elif(~burst.locks_row):
            m.d.comb += self.let_go.eq(1)
            m.d.sync += [row.open.eq(0), row.letting_go.eq(1)]
        with m.If(row.letting_go & ~hit_in_flight):
            m.d.sync += [row.discarding.eq(1), row.letting_go.eq(0)]
        with m.If(row.discarding & streamed.valid & streamed.payload.last):
            m.d.sync += row.discarding.eq(0)
        with m.If(self.bypass):  # a row of the previous job may be open
            m.d.sync += [flag.eq(0) for flag in (row.open, row.letting_go, row.discarding)]
