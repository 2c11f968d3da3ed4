"""Model row, word by word: version, updated w, and the LGVnum of every worker."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.param_server.shapes import FLOAT_BITS, VERSION_BITS, WORDS_BITS, order_layout
from fanin.hdl.rdma.queue_pair import index_bits
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.rdma.facts import RdmaConfig


def row_word_layout(width: int) -> data.StructLayout:
    """Return the layout of a row's word; ``last`` marks the row's last word."""
    return data.StructLayout({"data": width, "last": 1})


def tail_words(workers: Any, *, width: int) -> Any:
    """Return the number of words of the LGVnum vector of ``workers`` workers and the version after it."""
    lanes = width // VERSION_BITS
    return (workers + lanes) >> (lanes.bit_length() - 1)


class RowMaker(wiring.Component):
    """Assembler of rows: a head with the version, the updated words, the LGVnum vector and the version again.

    The LGVnum vector holds for each worker the version of its gradient that was applied last. The vector is
    stored here; each order changes one entry.

    Members
    -------
    ``workers`` : In, range(queue_pairs + 1)
        Entries of the vector, stable while a row is made. Entries after the last worker's are undefined: they
        belong to an earlier job.
    ``words`` : In
        Words of w, at least 1; stable while a row is made.
    ``clear`` : In, stream of a worker's index, always ready
        Set this worker's LGVnum to 0. Allowed only while no row is made.
    ``order`` : In, stream of :func:`order_layout`
        Orders for rows; taken with the head.
    ``updated`` : In, stream of ``width`` bits
        Words of the updated w.
    ``o`` : Out, stream of :func:`row_word_layout`
        Words of the rows.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Width and number of queue pairs.

    Latency
    -------
    1 cycle; one word a cycle, across rows.

    Source
    ------
    RDMA-wild, figure 4; docs/systems/param-server.md, "Memory".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "workers": In(range(config.queue_pairs + 1)),
                "words": In(WORDS_BITS),
                "clear": In(stream.Signature(index_bits(config), always_ready=True)),
                "order": In(stream.Signature(order_layout(config))),
                "updated": In(stream.Signature(config.width)),
                "o": Out(stream.Signature(row_word_layout(config.width))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Emit a row in order: HEAD (version), WORDS (w), TAIL (LGVnums, then the version again)."""
        m = Module()
        m.submodules.output = output = RegisterSlice(shape=self.o.payload.shape())
        connect_typed(m, output.o, flipped(self.o))
        lanes = self.config.width // VERSION_BITS
        depth = -(-(self.config.queue_pairs + 1) // lanes)  # words of the tail
        vector = data.ArrayLayout(VERSION_BITS, lanes)
        m.submodules.lgvnums = lgvnums = Memory(shape=vector, depth=depth, init=[])
        self._update(m, lgvnums.write_port(granularity=1))
        self._emit(m, output.i, lgvnums.read_port(domain="comb"))
        return m

    def _update(self, m: Module, write: Any) -> None:
        """Change an entry of the LGVnum vector: by an order, in the cycle of the head, or by ``clear``."""
        lanes = len(write.en)
        lane_bits = (lanes - 1).bit_length()
        index = Signal.like(self.clear.payload)
        lgvnum = Signal(VERSION_BITS)
        m.d.comb += [index.eq(self.order.payload.index), lgvnum.eq(self.order.payload.lgvnum)]
        with m.If(self.clear.valid):
            m.d.comb += [index.eq(self.clear.payload), lgvnum.eq(0)]
        with m.If(self.clear.valid | self.order.valid & self.order.ready):
            m.d.comb += write.en.eq(1 << index[:lane_bits])
        m.d.comb += [write.addr.eq(index[lane_bits:]), *(entry.eq(lgvnum) for entry in write.data)]

    def _emit(self, m: Module, o: Any, read: Any) -> None:
        """Build the state machine that emits the words of a row."""
        word = o.payload
        words_left = Signal(WORDS_BITS)  # words of w not emitted yet
        tail = Signal(read.addr.shape())  # number of the tail's next word
        last_tail = Signal(tail.shape())  # number of the tail's last word
        version = Signal(VERSION_BITS)
        is_last = tail == last_tail
        m.d.comb += read.addr.eq(tail)
        m.d.sync += last_tail.eq(tail_words(self.workers, width=self.config.width) - 1)
        with m.FSM():
            with m.State("HEAD"):
                m.d.comb += [
                    o.valid.eq(self.order.valid),
                    self.order.ready.eq(o.ready),
                    word.data[-VERSION_BITS:].eq(self.order.payload.version),
                ]
                m.d.sync += [version.eq(self.order.payload.version), words_left.eq(self.words), tail.eq(0)]
                with m.If(self.order.valid & o.ready):
                    m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += [
                    o.valid.eq(self.updated.valid),
                    self.updated.ready.eq(o.ready),
                    word.data.eq(self.updated.payload),
                ]
                with m.If(self.updated.valid & o.ready):
                    m.d.sync += words_left.eq(words_left - 1)
                    with m.If(words_left == 1):
                        m.next = "TAIL"
            with m.State("TAIL"):
                entries = list(read.data)
                entries[-1] = Mux(is_last, version, entries[-1])
                m.d.comb += [
                    o.valid.eq(1),
                    *(word.data.word_select(n, FLOAT_BITS).eq(entry) for n, entry in enumerate(entries)),
                    word.last.eq(is_last),
                ]
                with m.If(o.ready):
                    m.d.sync += tail.eq(tail + 1)
                    with m.If(is_last):
                        m.next = "HEAD"
