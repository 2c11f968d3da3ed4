"""A model row, word by word: version, w as it is updated, and what was applied last of every worker."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.param_server.shapes import FLOAT_BITS, VERSION_BITS, WORDS_BITS, order_layout
from fanin.hdl.rdma.queue_pair import index_bits
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.rdma import RdmaConfig


def row_word_layout(width: int) -> data.StructLayout:
    """A word of a row, and whether it is the ``last``."""
    return data.StructLayout({"data": width, "last": 1})


def tail_words(workers: Any, *, width: int) -> Any:
    """Words of the LGVnum vector of so many workers and the version behind it."""
    lanes = width // VERSION_BITS
    return (workers + lanes) >> (lanes.bit_length() - 1)


class RowMaker(wiring.Component):
    """Put rows together: a head with the version, the updated words, the LGVnum vector and the version again.

    The LGVnum vector is kept here: an order changes one entry of it.

    Members
    -------
    ``workers`` : In, range(queue_pairs + 1)
    ``words`` : In, of w; at least 1
        Both stable while a row is made. What stands behind the last worker's LGVnum is of no meaning: that of
        workers whom an earlier job had.
    ``clear`` : In, stream of a worker's index, always ready
        Its LGVnum becomes 0; only while no row is made.
    ``order`` : In, stream of :func:`order_layout`
        Taken with the head.
    ``updated`` : In, stream of ``width`` bits
    ``o`` : Out, stream of :func:`row_word_layout`

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    1 cycle; a word a cycle, across rows.

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
        """The LGVnum vector, and the words of a row in their order."""
        m = Module()
        m.submodules.cut = cut = RegisterSlice(shape=self.o.payload.shape())
        connect_typed(m, cut.o, flipped(self.o))
        lanes = self.config.width // VERSION_BITS
        depth = -(-(self.config.queue_pairs + 1) // lanes)
        vector = data.ArrayLayout(VERSION_BITS, lanes)
        m.submodules.lgvnums = lgvnums = Memory(shape=vector, depth=depth, init=[])
        write = lgvnums.write_port(granularity=1)
        read = lgvnums.read_port(domain="comb")
        head = self._applied(m, write)
        self._words(m, cut.i, read, head)
        return m

    def _applied(self, m: Module, write: Any) -> Signal:
        """Change an entry of the LGVnum vector: with the head of a row, which is returned, or when cleared."""
        lanes = len(write.en)
        head = Signal()  # an order is taken
        index = Signal.like(self.clear.payload)
        lane_bits = (lanes - 1).bit_length()
        m.d.comb += [
            index.eq(Mux(self.clear.valid, self.clear.payload, self.order.payload.index)),
            write.addr.eq(index[lane_bits:]),
            write.en.eq(Mux(self.clear.valid | head, 1 << index[:lane_bits], 0)),
            *(write.data[n].eq(Mux(self.clear.valid, 0, self.order.payload.lgvnum)) for n in range(lanes)),
        ]
        return head

    def _words(self, m: Module, o: Any, read: Any, head: Signal) -> None:
        """Head, updated words, tail. The count of words is negative at the last one: its sign tells."""
        left = Signal(signed(WORDS_BITS + 1))  # words behind the next one
        tail = Signal(read.addr.shape())
        last_tail = Signal(tail.shape())
        version = Signal(VERSION_BITS)
        m.d.sync += last_tail.eq(tail_words(self.workers, width=self.config.width) - 1)
        ends = Signal()
        m.d.comb += [read.addr.eq(tail), ends.eq(tail == last_tail)]
        word = o.payload
        with m.FSM():
            with m.State("HEAD"):
                m.d.comb += [
                    o.valid.eq(self.order.valid),
                    self.order.ready.eq(o.ready),
                    head.eq(self.order.valid & o.ready),
                    word.data[-VERSION_BITS:].eq(self.order.payload.version),
                ]
                m.d.sync += [version.eq(self.order.payload.version), left.eq(self.words - 2), tail.eq(0)]
                with m.If(head):
                    m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += [
                    o.valid.eq(self.updated.valid),
                    self.updated.ready.eq(o.ready),
                    word.data.eq(self.updated.payload),
                ]
                with m.If(self.updated.valid & o.ready):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left < 0):
                        m.next = "TAIL"
            with m.State("TAIL"):
                entries = list(read.data)
                entries[-1] = Mux(ends, version, entries[-1])
                m.d.comb += [
                    o.valid.eq(1),
                    *(word.data.word_select(n, FLOAT_BITS).eq(entry) for n, entry in enumerate(entries)),
                    word.last.eq(ends),
                ]
                with m.If(o.ready):
                    m.d.sync += tail.eq(tail + 1)
                    with m.If(ends):
                        m.next = "HEAD"
