"""The NIC's reads of a row, answered from the stream of words that is on its way to memory."""

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
from fanin.rdma import RdmaConfig

_BURSTS = 32  # that may be in flight
_UNLANDED_BITS = 16  # of a number of words on their way to memory: more than any writer has in flight


class Source(enum.Enum, shape=1):  # type: ignore[call-arg]
    """Where a burst's words come from."""

    STREAM = 0
    MEMORY = 1


def _source_layout() -> data.StructLayout:
    """A burst in flight: where its words come from, and their number less one.

    ``single``: it is one word, of the stream.
    """
    return data.StructLayout({"source": Source, "length": (MAX_BURST - 1).bit_length(), "single": 1})


class _Row:
    """The stream's row: its words that have not been asked for, and whether they may be."""

    def __init__(self, address_bits: int):
        self.open = Signal()  # they may be asked for
        self.closing = Signal()  # it was given up: hits in flight still get their words
        self.discarding = Signal()  # its other words are thrown away
        self.next_word = Signal(address_bits)  # the address of the first of them, in words
        self.left = Signal(signed(WORDS_BITS + 1))  # how many they are


class _Burst:
    """The burst that the NIC asks for."""

    def __init__(self, address_bits: int):
        self.word = Signal(address_bits)  # its first word's address, in words
        self.length = Signal((MAX_BURST - 1).bit_length())  # its beats less one, as on AXI
        self.beats = Signal(MAX_BURST.bit_length())
        self.issued = Signal()  # pulse, in the cycle after it is decided whence its words come
        self.is_hit = Signal()  # with ``issued``: they come from the stream
        # The row must not change: the burst is being compared with it, or is a hit that it has not counted yet.
        self.locks_row = Signal()


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
        The address of the stream's next row, and its length; with ``drop`` it is let go at once. It is taken
        when the row before has been asked for to its end, or let go, and from then on it may be read.
    ``i`` : In, stream of :func:`~fanin.hdl.param_server.row.row_word_layout`
        Rows, in their order.
    ``landed`` : In, range(257)
        Number of further stream words, in their order, that are now in memory.
    ``nic`` : In, AXI4 read port
        Reads whole words of a row in increasing order. ``rready`` must always be high.
    ``memory`` : Out, AXI4 read port
    ``let_go`` : Out, 1
        Pulse: the rest of a row is let go.

    Parameters
    ----------
    ``config`` : RdmaConfig
    ``depth`` : int, words
        Words that the stream may be ahead of the reader: at least a burst of the writer to memory.
    ``patience`` : int, cycles; at least 1
        Cycles without a read of the row, and without one in flight, until its rest is let go.

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
        self.lane_bits = lane_bits(config.width)  # address bits below a word's
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
        """Addresses on one side, words on the other; a queue between them has the sources of bursts in flight.

        A burst that is the next one of the *open* row is a hit, any other a miss. A miss goes to memory when no
        hit is in flight, which keeps the order of the words, and when every word asked for has landed. A row
        that is given up is *closing* until the hits in flight have their words, then *discarding*: its words
        are thrown away up to its last.
        """
        m = Module()
        m.submodules.sources = sources = StreamFIFO(shape=_source_layout(), depth=_BURSTS)
        m.submodules.stream_fifo = stream_fifo = StreamFIFO(shape=self.i.payload.shape(), depth=self.depth)
        connect_typed(m, flipped(self.i), stream_fifo.i)
        m.submodules.hits = hits = Credits(limit=_BURSTS)
        hit_in_flight = hits.ok  # a hit has been issued, and not all of its words handed on
        row = _Row(self.config.address_width - self.lane_bits)
        burst = _Burst(self.config.address_width - self.lane_bits)
        # Words asked of the stream or discarded, less those that landed. Negative while words have landed that
        # nobody has asked for.
        unlanded = Signal(signed(_UNLANDED_BITS))
        self._take_bursts(m, row, burst, sources.i, hit_in_flight, unlanded)
        hit_ends = self._hand_on(m, row, stream_fifo.o, sources.o)
        self._count(m, burst, row.discarding & stream_fifo.o.valid, unlanded)
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
            memory.araddr[self.lane_bits :].eq(burst.word),
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
                m.d.sync += [burst.word.eq(nic.araddr[self.lane_bits :]), burst.length.eq(nic.arlen)]
                with m.If(nic.arvalid):
                    m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += [is_next.eq(burst.word == row.next_word), burst.beats.eq(burst.length + 1)]
                m.next = "DECIDE"
            with m.State("DECIDE"):
                with m.If(row.open & is_next):
                    m.d.sync += [burst.issued.eq(sources.ready), burst.is_hit.eq(sources.ready)]
                    with m.If(sources.ready):
                        m.next = "TAKE"
                # While a row is given up, the burst's words may be among those to be discarded.
                with m.Elif(~row.closing & ~row.discarding):
                    m.next = "WAIT"
            with m.State("WAIT"), m.If((unlanded <= 0) & ~hit_in_flight & sources.ready):
                m.d.sync += [burst.issued.eq(1), memory.arvalid.eq(1)]
                m.next = "MEMORY"
            with m.State("MEMORY"), m.If(memory.arready):
                m.d.sync += memory.arvalid.eq(0)
                m.next = "TAKE"

    def _hand_on(self, m: Module, row: _Row, streamed: Any, sources: Any) -> Value:
        """Hand on the words of the oldest burst, from the stream or from memory.

        Returns whether a hit ends: its last word is handed on.
        """
        nic, memory = self.nic, self.memory
        oldest_is_hit = sources.valid & (sources.payload.source == Source.STREAM)
        hands_on = Signal()  # a beat of a hit, a word of the stream, is handed on
        is_last = Signal()  # that beat is the hit's last
        ends_long_hit = Signal()  # so it is, and not its first: known from a register
        next_beat = Signal.like(sources.payload.length, init=1)  # the number of the beat after it, from 0
        m.d.comb += [
            hands_on.eq(oldest_is_hit & streamed.valid),
            memory.rready.eq(1),  # a miss is issued when no hit is in flight: its words meet none of the stream
            streamed.ready.eq(oldest_is_hit | row.discarding),
            is_last.eq(ends_long_hit | sources.payload.single),
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
                ends_long_hit.eq(~is_last & (next_beat == sources.payload.length)),
                next_beat.eq(Mux(is_last, 1, next_beat + 1)),
            ]
        return hands_on & is_last

    def _count(self, m: Module, burst: _Burst, discarded: Any, unlanded: Signal) -> None:
        """Count ``unlanded``: a sum, a register, a sum, a register.

        A hit has been counted 3 cycles after DECIDE, before the next burst can be in WAIT.
        """
        change = Signal(signed(len(self.landed) + 1))
        m.d.sync += [
            change.eq(Mux(burst.is_hit, burst.beats, discarded) - self.landed),
            unlanded.eq(unlanded + change),
        ]

    def _change_row(self, m: Module, row: _Row, burst: _Burst, streamed: Any, hit_in_flight: Value) -> None:
        """Open the next row, advance it by a hit, close it at its end or when it is given up."""
        new_row = self.row
        patience_left = Signal(range(self.patience), init=self.patience - 1)  # cycles, less one
        # A burst must not be compared with one row and decided with another.
        m.d.comb += new_row.ready.eq(~row.open & ~row.closing & ~row.discarding & ~burst.locks_row)
        with m.If(burst.is_hit):
            m.d.sync += [
                row.next_word.eq(row.next_word + burst.beats),
                row.left.eq(row.left - burst.beats),
            ]
        with m.If(row.left <= 0):
            m.d.sync += row.open.eq(0)
        with m.If(new_row.valid & new_row.ready):
            m.d.sync += [
                row.next_word.eq(new_row.payload.address[self.lane_bits :]),
                row.left.eq(new_row.payload.words),
                row.open.eq(~new_row.payload.drop),
                row.closing.eq(new_row.payload.drop),
            ]
        with m.If(~row.open | hit_in_flight):
            m.d.sync += patience_left.eq(self.patience - 1)
        with m.Elif(patience_left != 0):
            m.d.sync += patience_left.eq(patience_left - 1)
        with m.Elif(~burst.locks_row):
            m.d.comb += self.let_go.eq(1)
            m.d.sync += [row.open.eq(0), row.closing.eq(1)]
        with m.If(row.closing & ~hit_in_flight):
            m.d.sync += [row.discarding.eq(1), row.closing.eq(0)]
        with m.If(row.discarding & streamed.valid & streamed.payload.last):
            m.d.sync += row.discarding.eq(0)
