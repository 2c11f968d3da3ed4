"""Who gets a row when: the worker of each gradient its own, or behind a barrier all workers one."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.param_server.shapes import ROW_BITS, streamed_layout, worker_layout
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, completion_layout, write_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.param_server import MAX_ROWS
from fanin.rdma import Ending, RdmaConfig

_RECEIVER = ("index", "remote", "rkey", "second")


def push_layout(config: RdmaConfig) -> data.StructLayout:
    """A row, its number and place, for the first or ``second`` of the worker's buffers from ``remote`` on."""
    worker = worker_layout(config)
    names = ("index", "remote", "rkey")
    members = {name: worker[name].shape for name in names}
    return data.StructLayout(members | {"second": 1, "row": ROW_BITS, "local": config.address_width})


class Pushes(wiring.Component):
    """Post every row to its worker; with ``barrier`` only that behind the last gradient of a round, to all.

    A round is a gradient of each worker. Its rows all go to memory alone, and the last one is read there as
    often as there are workers, in the order in which their gradients came. The next round's waits until all
    of them have ended.

    Members
    -------
    ``barrier`` : In, 1
    ``workers`` : In, range(queue pairs + 1)
        In a round.
    ``row_bytes`` : In, 32
        These three are stable from before ``start`` on.
    ``start`` : In, 1
        Pulse: nothing has been pushed, and nobody is gone.
    ``push`` : In, stream of :func:`push_layout`
        Every row, in the order in which they are made.
    ``row`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.streamed_layout`
        Of :class:`~fanin.hdl.param_server.streamed_reads.StreamedReads`.
    ``post`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
    ``completion`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.completion_layout`
        Of the NIC.
    ``occupied`` : Out, one bit for each row
        The row may still be read.
    ``gone`` : Out, one bit for each worker
        A push to it has failed: no further one is posted.
    ``pushed``, ``completed``, ``failed`` : Out, 1
        Pulses: a row was posted; its worker has it; its queue pair has ended.

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    5 cycles a row; a round's last one 5 cycles for each worker more.

    Source
    ------
    RDMA-wild, section 4.2, algorithm 1 (barter), and section 2 (Sync-DSGD); docs/systems/param-server.md.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "barrier": In(1),
                "workers": In(range(config.queue_pairs + 1)),
                "row_bytes": In(LENGTH_BITS),
                "start": In(1),
                "push": In(stream.Signature(push_layout(config))),
                "row": Out(stream.Signature(streamed_layout(config))),
                "post": Out(stream.Signature(write_layout(config))),
                "completion": In(stream.Signature(completion_layout(config))),
                "occupied": Out(MAX_ROWS),
                "gone": Out(config.queue_pairs),
                "pushed": Out(1),
                "completed": Out(1),
                "failed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A queue of rows; behind it one after the other is posted, or remembered until its round is whole."""
        m = Module()
        m.submodules.queue = queue = StreamFIFO(shape=push_layout(self.config), depth=2)
        connect_typed(m, wiring.flipped(self.push), queue.i)
        # Both in the cycle behind their states, out of registers: the row is still the same.
        self._skips = Signal()  # a push that nobody gets
        self._passes = Signal()  # a row that only the next update reads
        m.d.sync += [self._skips.eq(0), self._passes.eq(0)]
        self._under_way = Signal(range(self.config.queue_pairs + 1))  # pushes of a round
        self._round_ended = Signal()  # none was, a cycle ago
        m.d.sync += self._round_ended.eq(self._under_way == 0)
        self._post(m, queue.o)
        self._complete(m, queue.o.payload.row)
        return m

    def _post(self, m: Module, push: Any) -> None:
        """Every row in turn, and to whom it goes."""
        config, row, post = self.config, self.row, self.post
        layout = push_layout(config)
        receiver = data.StructLayout({name: layout[name].shape for name in _RECEIVER})
        m.submodules.round = members = Memory(shape=receiver, depth=config.queue_pairs, init=[])
        read, write = members.read_port(domain="comb"), members.write_port()
        to = self._to = Signal(receiver)  # whom, a cycle late
        member = self._member = Signal(range(config.queue_pairs))  # of the round
        is_last = self._is_last = Signal()
        ends = self._ends = Signal()  # this push is the last one of its row
        to_all = self._to_all = Signal()  # the round is whole
        is_gone = self._is_gone = Signal()
        low = Signal(LENGTH_BITS + 1)  # of the buffer's address, with the carry
        high = Signal(REMOTE_BITS - LENGTH_BITS)
        word_bits = (config.width // 8 - 1).bit_length()
        m.d.comb += [
            read.addr.eq(member),
            write.addr.eq(member),
            *(write.data[name].eq(push.payload[name]) for name in _RECEIVER),
            row.payload.address.eq(push.payload.local),
            row.payload.words.eq(self.row_bytes[word_bits:]),
            row.payload.drop.eq(is_gone | self.barrier),
            *(post.payload[name].eq(to[name]) for name in ("index", "rkey")),
            post.payload.remote.eq(Cat(low[:LENGTH_BITS], high)),
            post.payload.local.eq(push.payload.local),
            post.payload.tag.eq(push.payload.row),
            post.payload.length.eq(self.row_bytes),
        ]
        m.d.sync += [
            *(to[name].eq(Mux(to_all, read.data[name], push.payload[name])) for name in _RECEIVER),
            low.eq(to.remote[:LENGTH_BITS] + Mux(to.second, self.row_bytes, 0)),
            high.eq(to.remote[LENGTH_BITS:] + low[LENGTH_BITS]),
            is_last.eq(member + 1 == self.workers),
            ends.eq(~to_all | is_last),
        ]
        with m.FSM():
            self._each(m, push)
            self._round(m, push, write)
        with m.If(self.start):
            m.d.sync += member.eq(0)

    def _each(self, m: Module, push: Any) -> None:
        """States of every row: it may be read, and is posted unless its worker is gone."""
        row, post, to, member, ends = self.row, self.post, self._to, self._member, self._ends
        with m.State("LOOK"), m.If(push.valid):
            m.next = "WHOM"
        with m.State("WHOM"):
            m.d.sync += self._is_gone.eq(self.gone.bit_select(to.index, 1))
            m.next = "OPEN"
        with m.State("OPEN"):
            m.d.comb += row.valid.eq(1)
            with m.If(row.ready):
                m.next = "POST"
                with m.If(self.barrier):
                    m.next = "REMEMBER"
                with m.Elif(self._is_gone):
                    m.next = "SKIP"
        with m.State("POST"):
            m.d.comb += [post.valid.eq(1), self.pushed.eq(post.ready)]
            with m.If(post.ready):
                m.next = "NEXT"
        with m.State("SKIP"):
            m.d.sync += self._skips.eq(1)
            m.next = "NEXT"
        with m.State("NEXT"):
            m.d.comb += push.ready.eq(ends)
            m.d.sync += member.eq(Mux(ends, 0, member + 1))
            m.next = "MEMBER"
            with m.If(ends):
                m.d.sync += self._to_all.eq(0)
                m.next = "LOOK"

    def _round(self, m: Module, push: Any, write: Any) -> None:
        """States behind the barrier: a worker is remembered; with the last one the row is posted to each."""
        member = self._member
        with m.State("REMEMBER"):
            m.d.comb += write.en.eq(1)
            m.next = "ROUND"
            with m.If(~self._is_last):
                m.d.sync += [self._passes.eq(1), member.eq(member + 1)]
                m.next = "PASS"
        with m.State("PASS"):
            m.d.comb += push.ready.eq(1)
            m.next = "LOOK"
        with m.State("ROUND"), m.If(self._round_ended):
            m.d.sync += [member.eq(0), self._to_all.eq(1), self._under_way.eq(self.workers)]
            m.next = "MEMBER"
        with m.State("MEMBER"):
            m.next = "ADDRESS"
        with m.State("ADDRESS"):
            m.d.sync += self._is_gone.eq(self.gone.bit_select(self._to.index, 1))
            m.next = "CARRY"
        with m.State("CARRY"):
            m.next = "POST"
            with m.If(self._is_gone):
                m.next = "SKIP"

    def _complete(self, m: Module, row: Any) -> None:
        """A row is free again; whoever did not get his is left out from now on."""
        said, tag = self.completion, self.completion.payload.tag[:ROW_BITS]
        ends = Signal()  # a push
        frees = Signal()  # the row ``freed``, a cycle later
        freed = Signal(ROW_BITS)
        m.d.comb += [
            said.ready.eq(~self._skips & ~self._passes),
            ends.eq(self._skips | said.valid & said.ready),
        ]
        m.d.sync += [
            frees.eq(self._passes | ends & (~self.barrier | (self._under_way == 1))),
            freed.eq(Mux(said.ready, tag, row)),
        ]
        with m.If(self.push.valid & self.push.ready):
            m.d.sync += self.occupied.bit_select(self.push.payload.row, 1).eq(1)
        with m.If(frees):
            m.d.sync += self.occupied.bit_select(freed, 1).eq(0)
        with m.If(ends & self.barrier):
            m.d.sync += self._under_way.eq(self._under_way - 1)
        done = said.payload.ending == Ending.DONE
        whose = Signal.like(said.payload.index)
        m.d.sync += [
            self.completed.eq(said.valid & said.ready & done),
            self.failed.eq(said.valid & said.ready & ~done),
            whose.eq(said.payload.index),
        ]
        with m.If(self.failed):
            m.d.sync += self.gone.bit_select(whose, 1).eq(1)
        with m.If(self.start):
            m.d.sync += [self.occupied.eq(0), self.gone.eq(0), self._under_way.eq(0)]
