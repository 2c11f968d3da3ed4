"""Which worker each row is pushed to: that of its gradient, or with a barrier all workers."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.param_server.shapes import ROW_BITS, streamed_layout, worker_layout
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, completion_layout, write_layout
from fanin.hdl.rdma.shapes import lane_bits
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.param_server import MAX_ROWS
from fanin.rdma import Ending, RdmaConfig


def push_layout(config: RdmaConfig) -> data.StructLayout:
    """A row to push: number ``row`` at ``local``, to the worker ``index``, whose buffers are at ``remote``.

    ``second``: it goes to the second of them, else to the first.
    """
    worker = worker_layout(config)
    names = ("index", "remote", "rkey")
    members = {name: worker[name].shape for name in names}
    return data.StructLayout(members | {"second": 1, "row": ROW_BITS, "local": config.address_width})


def _receiver_layout(config: RdmaConfig) -> data.StructLayout:
    """Whom a row is pushed to."""
    members = push_layout(config).members
    return data.StructLayout({name: members[name] for name in ("index", "remote", "rkey", "second")})


class _Round:
    """The members of a round, in the order of their gradients, and how far the round has come."""

    def __init__(self, m: Module, config: RdmaConfig, workers: Value):
        m.submodules.round = members = Memory(shape=_receiver_layout(config), depth=config.queue_pairs, init=[])
        self.read, self.write = members.read_port(domain="comb"), members.write_port()
        self.position = Signal(range(config.queue_pairs))  # of the next member to join, or to be posted to
        self.posting = Signal()  # the round is complete, its last row is being posted
        self.in_flight = Signal(range(config.queue_pairs + 1))  # pushes of a round that have not ended
        self.has_ended = Signal()  # none was in flight a cycle ago
        self.is_last = self.position + 1 == workers
        m.d.comb += [self.read.addr.eq(self.position), self.write.addr.eq(self.position)]
        m.d.sync += self.has_ended.eq(self.in_flight == 0)


class Pushes(wiring.Component):
    """Post every row to the worker whose gradient it consumed; with ``barrier``, a round's last row to all.

    A round is a gradient of each worker. Its last row is posted to each worker, in the order in which their
    gradients came, once the pushes of the round before have completed. Its other rows are never read by the
    NIC: only the next update reads them. A worker to which a push fails is excluded: nothing more is posted to
    it.

    Members
    -------
    ``barrier`` : In, 1
        Push a round's last row to all workers, and no other row. Stable from before ``start`` on, as are
        ``workers`` and ``row_bytes``.
    ``workers`` : In, range(queue pairs + 1)
        Workers of a round.
    ``row_bytes`` : In, 32
        Bytes of a row.
    ``start`` : In, 1
        Pulse: no row is occupied, no worker excluded.
    ``push`` : In, stream of :func:`push_layout`
        Every row, in the order in which they are made.
    ``row`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.streamed_layout`
        Every row, for :class:`~fanin.hdl.param_server.streamed_reads.StreamedReads`, before it is posted.
    ``post`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
        Writes for the NIC. Their tag is the row's number.
    ``completion`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.completion_layout`
        The NIC's, one for each post.
    ``occupied`` : Out, one bit for each row
        The row may still be read: it must not be overwritten.
    ``excluded`` : Out, one bit for each worker
        A push to it has failed.
    ``pushed``, ``completed``, ``failed``, ``skipped`` : Out, 1
        Pulses: a row was posted; its worker has it; its queue pair has failed; it was not posted, as its worker
        is excluded.

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    5 cycles a row; a round's last one 5 cycles for each worker more.

    Source
    ------
    RDMA-wild, section 4.2, algorithm 1 (barter), and section 2 (Sync-DSGD);
    docs/systems/param-server-hardware.md, "Barrier".
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
                "excluded": Out(config.queue_pairs),
                "pushed": Out(1),
                "completed": Out(1),
                "failed": Out(1),
                "skipped": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """One row at a time, from the queue: opened to the streamed reads, then posted, skipped or passed over.

        *Skipped* is a push to an excluded worker; *passed over* is a row that ends no round. The NIC completes
        neither, so each frees its row as a completion would, in the cycle after its state; completions wait in
        that cycle. Every push ends once: completed, failed or skipped. The states of a row are::

            IDLE, RECEIVER          the row comes; is its worker excluded?
            OPEN                    the row goes to the streamed reads
            POST or SKIP            its push is posted, or skipped
            NEXT                    the row leaves the queue, or the next member of the round follows

        With a barrier, REMEMBER follows OPEN and enters the worker into the round. PASS then lets a row go that
        ends no round. If the worker is the last, ROUND waits until the round before has ended; then MEMBER,
        ADDRESS, CARRY and POST or SKIP push the row to one member after the other.
        """
        m = Module()
        m.submodules.queue = queue = StreamFIFO(shape=push_layout(self.config), depth=2)
        connect_typed(m, wiring.flipped(self.push), queue.i)
        round_ = _Round(m, self.config, self.workers)
        passed = Signal()  # a row was passed over, a cycle ago
        m.d.sync += [self.skipped.eq(0), passed.eq(0)]
        self._post(m, queue.o, round_, passed)
        self._complete(m, queue.o.payload.row, round_, passed)
        return m

    def _post(self, m: Module, push: Any, round_: _Round, passed: Signal) -> None:
        """The states of a row, and the fields of its post."""
        receiver = Signal(_receiver_layout(self.config))  # a cycle after the row, or after the member's number
        is_excluded = Signal()
        names = receiver.shape().members
        m.d.comb += [round_.write.data[name].eq(push.payload[name]) for name in names]
        m.d.sync += [
            receiver[name].eq(Mux(round_.posting, round_.read.data[name], push.payload[name])) for name in names
        ]
        self._describe(m, push.payload, receiver, is_excluded)
        with m.FSM():
            self._each(m, push, round_, receiver, is_excluded)
            self._barrier(m, push, round_, passed)
            with m.State("MEMBER"):  # loads ``receiver``
                m.next = "ADDRESS"
            with m.State("ADDRESS"):  # the lower half of the buffer's address
                m.d.sync += is_excluded.eq(self.excluded.bit_select(receiver.index, 1))
                m.next = "CARRY"
            with m.State("CARRY"):  # the upper half
                m.next = "POST"
                with m.If(is_excluded):
                    m.next = "SKIP"
        with m.If(self.start):
            m.d.sync += round_.position.eq(0)

    def _describe(self, m: Module, push: Any, receiver: Any, is_excluded: Signal) -> None:
        """The row as the streamed reads and the NIC get it.

        The buffer's address is a sum of 64 bits, too long for one carry chain. The lower half takes a cycle,
        and the upper half, with its carry, the next one.
        """
        row, post = self.row.payload, self.post.payload
        low = Signal(LENGTH_BITS + 1)
        high = Signal(REMOTE_BITS - LENGTH_BITS)
        m.d.sync += [
            low.eq(receiver.remote[:LENGTH_BITS] + Mux(receiver.second, self.row_bytes, 0)),
            high.eq(receiver.remote[LENGTH_BITS:] + low[LENGTH_BITS]),
        ]
        m.d.comb += [
            row.address.eq(push.local),
            row.words.eq(self.row_bytes[lane_bits(self.config.width) :]),
            row.drop.eq(is_excluded | self.barrier),
            *(post[name].eq(receiver[name]) for name in ("index", "rkey")),
            post.remote.eq(Cat(low[:LENGTH_BITS], high)),
            post.local.eq(push.local),
            post.tag.eq(push.row),
            post.length.eq(self.row_bytes),
        ]

    def _each(self, m: Module, push: Any, round_: _Round, receiver: Any, is_excluded: Signal) -> None:
        """States of every row: it goes to the streamed reads, and is posted unless its worker is excluded."""
        ends = ~round_.posting | round_.is_last  # this push is the last one of its row
        with m.State("IDLE"), m.If(push.valid):
            m.next = "RECEIVER"
        with m.State("RECEIVER"):
            m.d.sync += is_excluded.eq(self.excluded.bit_select(receiver.index, 1))
            m.next = "OPEN"
        with m.State("OPEN"):
            m.d.comb += self.row.valid.eq(1)
            with m.If(self.row.ready):
                with m.If(self.barrier):
                    m.next = "REMEMBER"
                with m.Elif(is_excluded):
                    m.next = "SKIP"
                with m.Else():
                    m.next = "POST"
        with m.State("POST"):
            m.d.comb += [self.post.valid.eq(1), self.pushed.eq(self.post.ready)]
            with m.If(self.post.ready):
                m.next = "NEXT"
        with m.State("SKIP"):
            m.d.sync += self.skipped.eq(1)
            m.next = "NEXT"
        with m.State("NEXT"):
            m.d.comb += push.ready.eq(ends)
            with m.If(ends):
                m.d.sync += [round_.position.eq(0), round_.posting.eq(0)]
                m.next = "IDLE"
            with m.Else():
                m.d.sync += round_.position.eq(round_.position + 1)
                m.next = "MEMBER"

    def _barrier(self, m: Module, push: Any, round_: _Round, passed: Signal) -> None:
        """States with a barrier: the worker joins the round; with the last worker the row is posted to each."""
        with m.State("REMEMBER"):
            m.d.comb += round_.write.en.eq(1)
            with m.If(round_.is_last):
                m.next = "ROUND"
            with m.Else():
                m.d.sync += [passed.eq(1), round_.position.eq(round_.position + 1)]
                m.next = "PASS"
        with m.State("PASS"):
            m.d.comb += push.ready.eq(1)
            m.next = "IDLE"
        with m.State("ROUND"), m.If(round_.has_ended):
            m.d.sync += [round_.position.eq(0), round_.posting.eq(1), round_.in_flight.eq(self.workers)]
            m.next = "MEMBER"

    def _complete(self, m: Module, current_row: Value, round_: _Round, passed: Signal) -> None:
        """Free a row with its last push, and exclude a worker with its first failure."""
        completion = self.completion.payload
        transfer = Signal()  # of a completion
        push_ends = Signal()
        frees = Signal()  # from a register: the row ``freed`` becomes free
        freed = Signal(ROW_BITS)
        completed_index = Signal.like(completion.index)
        is_done = completion.ending == Ending.DONE
        m.d.comb += [
            self.completion.ready.eq(~self.skipped & ~passed),
            transfer.eq(self.completion.valid & self.completion.ready),
            push_ends.eq(self.skipped | transfer),
        ]
        m.d.sync += [
            frees.eq(passed | push_ends & (~self.barrier | (round_.in_flight == 1))),
            freed.eq(Mux(self.completion.ready, completion.tag[:ROW_BITS], current_row)),
            self.completed.eq(transfer & is_done),
            self.failed.eq(transfer & ~is_done),
            completed_index.eq(completion.index),
        ]
        with m.If(self.push.valid & self.push.ready):
            m.d.sync += self.occupied.bit_select(self.push.payload.row, 1).eq(1)
        with m.If(frees):
            m.d.sync += self.occupied.bit_select(freed, 1).eq(0)
        with m.If(push_ends & self.barrier):
            m.d.sync += round_.in_flight.eq(round_.in_flight - 1)
        with m.If(self.failed):
            m.d.sync += self.excluded.bit_select(completed_index, 1).eq(1)
        with m.If(self.start):
            m.d.sync += [self.occupied.eq(0), self.excluded.eq(0), round_.in_flight.eq(0)]
