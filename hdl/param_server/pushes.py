"""Pushes of model rows to workers: to one worker for each row, or to all targets of a round.

A *push* is an RDMA write of one row to one of a worker's two model buffers. A *round* is a sequence of updates
of which only the last one's row is pushed: the updates of a scan, one update per worker (barrier), or with
broadcast alone a single update. The *targets* of a round are the workers that get this row.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import MAX_BURST
from fanin.hdl.param_server.row_landings import RowLandings
from fanin.hdl.param_server.shapes import ROW_BITS, streamed_layout, worker_layout
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, completion_layout, index_bits, write_layout
from fanin.hdl.rdma.shapes import lane_bits
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.param_server.facts import MAX_ROWS
from fanin.rdma.facts import Ending, RdmaConfig


def push_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a row to push.

    ``index``: the worker whose gradient the row consumed.
    ``remote``: address of the worker's two buffers, each one row long, the second after the first.
    ``rkey``: key of the region that holds these buffers.
    ``second``: the row goes to the second buffer.
    ``row``: number of the row.
    ``local``: address of the row here.
    ``is_new``: the row consumed a gradient; 0: the item repeats the newest row, only to end the round.
    ``ends_round``: the row is the last of its round.
    ``readmits``: the item is no row; it readmits the excluded worker ``index``.
    """
    worker = worker_layout(config)
    names = ("index", "remote", "rkey")
    members = {name: worker[name].shape for name in names}
    row = {"row": ROW_BITS, "local": config.address_width, "is_new": 1, "ends_round": 1}
    row |= {"readmits": 1}
    return data.StructLayout(members | {"second": 1} | row)


def _target_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a push's target: a worker, and one of its buffers."""
    members = push_layout(config).members
    return data.StructLayout({name: members[name] for name in ("index", "remote", "rkey", "second")})


class _Round:
    """State of a round: its targets, in the order of their gradients, and its progress.

    For a broadcast the targets are the workers as they were set up.
    """

    def __init__(self, m: Module, config: RdmaConfig):
        m.submodules.round = targets = Memory(shape=_target_layout(config), depth=config.queue_pairs, init=[])
        self.read, self.write = targets.read_port(domain="comb"), targets.write_port()
        self.second = Signal()  # buffer that broadcast rows go to, the same for all workers
        self.position = Signal(range(config.queue_pairs + 1))  # index of the next target to store or to push to
        self.size = Signal.like(self.position)  # number of targets of the row whose pushes began last
        self.is_last = Signal()  # the target at ``position`` is the last one
        self.pushing = Signal()  # all targets are stored; the round's last row is being pushed to them
        self.joins = Signal()  # pulse: a new row of the round is at the queue's head
        self.unlanded = Signal(signed(ROW_BITS + 1))  # rows that have joined, minus rows that have landed
        m.d.comb += self.read.addr.eq(self.position)
        m.d.sync += self.is_last.eq(self.position + 1 == self.size)


class Pushes(wiring.Component):
    """Engine that pushes rows to workers through the NIC.

    Without ``rounds`` each row goes to the worker whose gradient it consumed. With ``rounds`` only the last row
    of a round is pushed: to the workers whose gradients the round consumed, or with ``broadcast`` to all
    workers.

    A push is posted to the NIC, and its completion reports success or failure. A worker to which a push fails
    is *excluded*: further pushes to it are *skipped*. Every push therefore ends exactly once: completed, failed
    or skipped. A readmitted worker gets the rows that follow its readmission in ``push``.

    A round's last row is pushed after it has landed in memory, in the order in which the round's gradients were
    taken; a broadcast goes by worker index. Other rows of a round are not pushed: only the next update reads
    them. Broadcast rows go to the workers' second and first buffers in turn.

    Members
    -------
    ``rounds`` : In, 1
        Rows belong to rounds. ``rounds``, ``broadcast``, ``workers`` and ``row_bytes`` are stable from before
        ``start`` on.
    ``broadcast`` : In, 1
        A round's last row is pushed to all workers. Allowed only with ``rounds``.
    ``workers`` : In, range(queue pairs + 1)
        Number of workers of a broadcast: those with a lower index.
    ``worker`` : In, stream of :func:`~fanin.hdl.param_server.shapes.worker_layout`, always ready
        Every worker, before ``start``, for broadcasts.
    ``row_bytes`` : In, 32
        Bytes of a row.
    ``start`` : In, 1
        Pulse: readmit all workers and begin a round. Allowed only while no row is ``occupied``, since a push in
        progress would continue.
    ``exclude`` : In, stream of a worker's index, always ready
        Exclude this worker, as if a push to it had failed.
    ``push`` : In, stream of :func:`push_layout`
        Every row, in the order of the updates, and readmissions between them. A readmitted worker is excluded
        and has no push in flight.
    ``landed`` : In, range(257)
        Number of additional words of the rows, in order, that are now in memory.
    ``row`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.streamed_layout`
        Every row before its push, for :class:`~fanin.hdl.param_server.streamed_reads.StreamedReads`. Unused
        with ``rounds``.
    ``post`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
        Writes for the NIC. Their tag is the row's number.
    ``completion`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.completion_layout`
        Completions of the NIC, one for each post.
    ``occupied`` : Out, one bit for each row
        The NIC may still read the row: it must not be overwritten. With ``rounds`` only a round's last row
        becomes occupied.
    ``excluded`` : Out, one bit for each worker
        A push to the worker has failed, or ``exclude`` named it.
    ``draining`` : Out, 1
        A push to an excluded worker may be in flight.
    ``busy`` : Out, 1
        A row is ``occupied``, or waits for its push.
    ``pushed``, ``completed``, ``failed``, ``skipped`` : Out, 1
        Pulses: a push was posted, has completed, has failed, was skipped.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs, and widths.

    Latency
    -------
    5 cycles a row. A round's first push begins 8 cycles after its last row has landed, and one every 5 cycles.

    Source
    ------
    RDMA-wild, section 4.2, algorithm 1 (barter), and section 2 (Sync-DSGD);
    docs/systems/param-server-hardware.md, "Rounds".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "rounds": In(1),
                "broadcast": In(1),
                "workers": In(range(config.queue_pairs + 1)),
                "row_bytes": In(LENGTH_BITS),
                "worker": In(stream.Signature(worker_layout(config), always_ready=True)),
                "start": In(1),
                "exclude": In(stream.Signature(index_bits(config), always_ready=True)),
                "push": In(stream.Signature(push_layout(config))),
                "landed": In(range(MAX_BURST + 1)),
                "row": Out(stream.Signature(streamed_layout(config))),
                "post": Out(stream.Signature(write_layout(config))),
                "completion": In(stream.Signature(completion_layout(config))),
                "occupied": Out(MAX_ROWS),
                "excluded": Out(config.queue_pairs),
                "draining": Out(1),
                "busy": Out(1),
                "pushed": Out(1),
                "completed": Out(1),
                "failed": Out(1),
                "skipped": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Process rows from the queue one at a time. 1+: one cycle, or longer while waiting::

            state         cycles   what it does                                next
            IDLE          1+       awaits a row, loads its ``target``          LOOKUP
            LOOKUP        1        checks whether the worker is excluded       OPEN, or in rounds JOIN,
                                                                               or READMIT
            READMIT       1        ends the exclusion of the worker            IDLE
            OPEN          1+       gives the row to the streamed reads         POST, or SKIP if excluded
            POST          1+       posts the push                              NEXT
            SKIP          1        ends the push as skipped                    NEXT
            NEXT          1        takes the row from the queue, unless it     IDLE, or LOAD
                                   has another target

            in rounds:
            JOIN          1        stores the target of the round's last row   PASS; LAND at the last row
            PASS          1        takes the row from the queue                IDLE
            LAND          1+       awaits the row in memory                    LOAD
            LOAD          1        loads a ``target`` of the round             ROUND LOOKUP
            ROUND LOOKUP  1        checks whether the worker is excluded       SUM
            SUM           1        lets the buffer's address settle            POST, or SKIP if excluded

        The NIC reports no completion for a skipped push. The end of a skipped push is handled like a completion
        in the cycle after SKIP; real completions wait in that cycle.
        """
        m = Module()
        m.submodules.queue = queue = StreamFIFO(shape=push_layout(self.config), depth=2)
        connect_typed(m, wiring.flipped(self.push), queue.i)
        round_ = _Round(m, self.config)
        begins = Signal()  # pulse: the row at the queue's head gets ``round_.size`` pushes
        m.d.sync += self.skipped.eq(0)
        self._push(m, queue.o, round_, begins)
        self._end(m, queue.o.payload.row, round_, begins)
        m.d.comb += self.busy.eq(self.occupied.any() | queue.o.valid)
        return m

    def _push(self, m: Module, push: Any, round_: _Round, begins: Signal) -> None:
        """Build the states and the registers of the current push."""
        target = Signal(_target_layout(self.config))  # valid a cycle after the queue's row or the position
        is_excluded = Signal()  # the target's worker is excluded
        names = target.shape().members
        worker = self.worker.payload
        with m.If(self.worker.valid):  # before ``start``, while the queue is empty
            m.d.comb += [
                round_.write.addr.eq(worker.index),
                round_.write.en.eq(1),
                *(round_.write.data[name].eq(worker[name]) for name in ("index", "remote", "rkey")),
            ]
        with m.Else():
            m.d.comb += [
                round_.write.addr.eq(Mux(push.payload.readmits, push.payload.index, round_.position)),
                *(round_.write.data[name].eq(push.payload[name]) for name in names),
            ]
        m.d.sync += [
            target[name].eq(Mux(round_.pushing, round_.read.data[name], push.payload[name])) for name in names
        ]
        with m.If(self.broadcast):
            m.d.sync += target.second.eq(round_.second)
        self._describe(m, push.payload, target, is_excluded)
        with m.FSM():
            self._row_states(m, push, round_, begins, target, is_excluded)
            self._round_states(m, push, round_, target, is_excluded)
        target_count = Mux(self.broadcast, self.workers, round_.position + push.payload.is_new)
        with m.If(begins):
            m.d.sync += round_.size.eq(Mux(self.rounds, target_count, 1))
        m.submodules.landings = landings = RowLandings()
        m.d.comb += [
            landings.start.eq(self.start),
            landings.words.eq(self._row_words),
            landings.landed.eq(self.landed),
        ]
        m.d.sync += round_.unlanded.eq(round_.unlanded + round_.joins - landings.row)
        with m.If(self.start):
            m.d.sync += [register.eq(0) for register in (round_.position, round_.second, round_.unlanded)]

    def _describe(self, m: Module, push: Any, target: Any, is_excluded: Signal) -> None:
        """Drive the row's description for the streamed reads and for the NIC.

        The buffer's address is a 64-bit sum, too long for one carry chain. ``low`` is valid a cycle after
        ``target``. ``high`` needs the carry of ``low`` and is valid 2 cycles after ``target``. POST uses the
        address, 2 states after ``target`` is valid in LOOKUP or ROUND LOOKUP.
        """
        row, post = self.row.payload, self.post.payload
        low = Signal(LENGTH_BITS + 1)
        high = Signal(REMOTE_BITS - LENGTH_BITS)
        m.d.sync += [
            low.eq(target.remote[:LENGTH_BITS] + Mux(target.second, self.row_bytes, 0)),
            high.eq(target.remote[LENGTH_BITS:] + low[LENGTH_BITS]),
        ]
        m.d.comb += [
            row.address.eq(push.local),
            row.words.eq(self._row_words),
            row.memory_only.eq(is_excluded),
            *(post[name].eq(target[name]) for name in ("index", "rkey")),
            post.remote.eq(Cat(low[:LENGTH_BITS], high)),
            post.local.eq(push.local),
            post.tag.eq(push.row),
            post.length.eq(self.row_bytes),
        ]

    @property
    def _row_words(self) -> Value:
        return self.row_bytes[lane_bits(self.config.width) :]

    def _row_states(
        self, m: Module, push: Any, round_: _Round, begins: Signal, target: Any, is_excluded: Signal
    ) -> None:
        """Build the states that exist with and without rounds."""
        is_last_push = ~round_.pushing | round_.is_last  # last push of the row
        with m.State("IDLE"), m.If(push.valid):
            m.next = "LOOKUP"
        with m.State("LOOKUP"):
            m.d.sync += is_excluded.eq(self.excluded.bit_select(target.index, 1))
            m.d.comb += begins.eq(push.payload.ends_round)
            m.next = "OPEN"
            with m.If(self.rounds):
                m.next = "JOIN"
            with m.If(push.payload.readmits):
                m.next = "READMIT"
        with m.State("READMIT"):
            m.d.comb += [push.ready.eq(1), round_.write.en.eq(self.broadcast)]
            m.d.sync += self.excluded.bit_select(push.payload.index, 1).eq(0)
            m.next = "IDLE"
        with m.State("OPEN"):
            m.d.comb += self.row.valid.eq(1)
            with m.If(self.row.ready):
                m.next = "POST"
                with m.If(is_excluded):
                    m.next = "SKIP"
        with m.State("POST"):
            m.d.comb += [self.post.valid.eq(1), self.pushed.eq(self.post.ready)]
            with m.If(self.post.ready):
                m.next = "NEXT"
        with m.State("SKIP"):
            m.d.sync += self.skipped.eq(1)
            m.next = "NEXT"
        with m.State("NEXT"):
            m.d.comb += push.ready.eq(is_last_push)
            with m.If(is_last_push):
                m.d.sync += [round_.position.eq(0), round_.pushing.eq(0)]
                m.next = "IDLE"
            with m.Else():
                m.d.sync += round_.position.eq(round_.position + 1)
                m.next = "LOAD"

    def _round_states(self, m: Module, push: Any, round_: _Round, target: Any, is_excluded: Signal) -> None:
        """Build the states of rounds."""
        with m.State("JOIN"):
            m.d.comb += [
                round_.joins.eq(push.payload.is_new),
                round_.write.en.eq(round_.joins & ~self.broadcast),
            ]
            m.d.sync += round_.position.eq(round_.position + round_.joins)
            m.next = "PASS"
            with m.If(push.payload.ends_round):
                m.next = "LAND"
        with m.State("PASS"):
            m.d.comb += push.ready.eq(1)
            m.next = "IDLE"
        with m.State("LAND"), m.If(round_.unlanded <= 0):
            m.d.sync += [round_.position.eq(0), round_.pushing.eq(1), round_.second.eq(~round_.second)]
            m.next = "LOAD"
        with m.State("LOAD"):
            m.next = "ROUND LOOKUP"
        with m.State("ROUND LOOKUP"):
            m.d.sync += is_excluded.eq(self.excluded.bit_select(target.index, 1))
            m.next = "SUM"
        with m.State("SUM"):
            m.next = "POST"
            with m.If(is_excluded):
                m.next = "SKIP"

    def _end(self, m: Module, current_row: Value, round_: _Round, begins: Signal) -> None:
        """End pushes: free a row after its last push, exclude a worker after its first failed push.

        ``pushes_left`` counts each row's pushes that have not ended. The counter is written a cycle after a row
        ``begins`` or a push has ended; these events never share a cycle.
        """
        completion = self.completion.payload
        completes = Signal()  # a completion is taken
        has_begun = Signal()
        has_ended = Signal()
        row = Signal(ROW_BITS)  # row of the push or pushes that begin or end
        frees = Signal()  # ``freed_row`` is free again
        freed_row = Signal.like(row)
        completed_index = Signal.like(completion.index)
        is_done = completion.ending == Ending.DONE
        m.submodules.pushes_left = pushes_left = Memory(shape=round_.size.shape(), depth=MAX_ROWS, init=[])
        read, write = pushes_left.read_port(domain="comb"), pushes_left.write_port()
        m.d.comb += [
            self.completion.ready.eq(~self.skipped & ~begins),
            completes.eq(self.completion.valid & self.completion.ready),
            read.addr.eq(row),
            write.addr.eq(row),
            write.en.eq(has_begun | has_ended),
            write.data.eq(Mux(has_begun, round_.size, read.data - 1)),
        ]
        m.d.sync += [
            has_begun.eq(begins),
            has_ended.eq(self.skipped | completes),
            row.eq(Mux(self.completion.ready, completion.tag[:ROW_BITS], current_row)),
            frees.eq(has_ended & (read.data == 1)),
            freed_row.eq(row),
            self.completed.eq(completes & is_done),
            self.failed.eq(completes & ~is_done),
            completed_index.eq(completion.index),
        ]
        with m.If(self.push.valid & self.push.ready & self.push.payload.ends_round):
            m.d.sync += self.occupied.bit_select(self.push.payload.row, 1).eq(1)
        # Rows that were occupied when a worker was last excluded. Nothing is posted to that worker afterwards,
        # so these rows include all of its pushes in flight.
        drains = Signal.like(self.occupied)
        excludes = self.failed | self.exclude.valid
        m.d.comb += self.draining.eq(drains.any() | excludes)
        with m.If(excludes):
            m.d.sync += drains.eq(self.occupied)
        for excludes_worker, index in (
            (self.failed, completed_index),
            (self.exclude.valid, self.exclude.payload),
        ):
            with m.If(excludes_worker):
                m.d.sync += self.excluded.bit_select(index, 1).eq(1)
        with m.If(frees):
            m.d.sync += [rows.bit_select(freed_row, 1).eq(0) for rows in (self.occupied, drains)]
        with m.If(self.start):
            m.d.sync += [self.occupied.eq(0), self.excluded.eq(0), drains.eq(0)]
