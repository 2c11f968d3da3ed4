"""Push every row to the worker whose gradient it consumed, or to all, or with a barrier a round's last one."""

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
    """A row to push: number ``row`` at ``local``, to the worker ``index``.

    The worker has two buffers of a row each, one after the other from ``remote`` on, in the region ``rkey``.
    The row goes to the first, or with ``second`` to the second.
    """
    worker = worker_layout(config)
    names = ("index", "remote", "rkey")
    members = {name: worker[name].shape for name in names}
    return data.StructLayout(members | {"second": 1, "row": ROW_BITS, "local": config.address_width})


def _target_layout(config: RdmaConfig) -> data.StructLayout:
    """Where a row is pushed to: a worker, and which of its buffers."""
    members = push_layout(config).members
    return data.StructLayout({name: members[name] for name in ("index", "remote", "rkey", "second")})


class _Round:
    """The targets of a round, in the order of their gradients, and how far the round has come.

    A broadcast row is a round of its own, whose targets are the workers as they were set up.
    """

    def __init__(self, m: Module, config: RdmaConfig, workers: Value):
        m.submodules.round = targets = Memory(shape=_target_layout(config), depth=config.queue_pairs, init=[])
        self.read, self.write = targets.read_port(domain="comb"), targets.write_port()
        self.second = Signal()  # which buffer of all workers broadcast rows go to
        self.position = Signal(range(config.queue_pairs))  # of the target to be kept, or pushed to, next
        self.is_last = self.position + 1 == workers  # that target is the round's last
        self.pushing = Signal()  # all targets are kept: the round's last row is being pushed to each
        self.in_flight = Signal(range(config.queue_pairs + 1))  # pushes of a round that have not ended
        self.has_ended = Signal()  # none was in flight a cycle ago
        m.d.comb += self.read.addr.eq(self.position)
        m.d.sync += self.has_ended.eq(self.in_flight == 0)


class Pushes(wiring.Component):
    """Push every row to the worker whose gradient it consumed; with ``broadcast``, to all workers; with
    ``barrier``, a round's last row to all.

    A push is posted to the NIC, and its completion says whether it has succeeded. A worker to which one fails
    is *excluded*: further pushes to it are *skipped*. So every push ends once: completed, failed or skipped.

    A round is one gradient from every worker. Its last row is pushed to each worker, in the order in which
    their gradients came, once the pushes of the round before have ended. Its other rows are *passed over*: only
    the next update reads them. A row that is broadcast is posted to the workers by their index, once the pushes
    of the row before have ended; it goes to the workers' second buffers, the next one to their first ones.

    Members
    -------
    ``barrier`` : In, 1
        Push a round's last row to all workers, and pass over its other rows. Stable from before ``start`` on,
        as are ``broadcast``, ``workers`` and ``row_bytes``.
    ``broadcast`` : In, 1
        Push every row to all workers; not with ``barrier``.
    ``workers`` : In, range(queue pairs + 1)
        Workers of a round, or of a broadcast: those with an index below this number.
    ``worker`` : In, stream of :func:`~fanin.hdl.param_server.shapes.worker_layout`, always ready
        Every worker, before ``start``, for broadcasts.
    ``row_bytes`` : In, 32
        Bytes of a row.
    ``start`` : In, 1
        Pulse: readmits all workers and begins a round. Only while no row is ``occupied``: a push goes on.
    ``push`` : In, stream of :func:`push_layout`
        Every row, in the order in which they are made.
    ``row`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.streamed_layout`
        Every row, for :class:`~fanin.hdl.param_server.streamed_reads.StreamedReads`, before it is pushed.
    ``post`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
        Writes for the NIC. Their tag is the row's number.
    ``completion`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.completion_layout`
        The NIC's, one for each post.
    ``occupied`` : Out, one bit for each row
        The row may still be read: it must not be overwritten.
    ``excluded`` : Out, one bit for each worker
        A push to it has failed.
    ``pushed``, ``completed``, ``failed``, ``skipped`` : Out, 1
        Pulses: a push was posted; has completed; has failed; was skipped.

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    5 cycles a row, and for a round's last one, or each that is broadcast, 5 more for each worker.

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
                "broadcast": In(1),
                "workers": In(range(config.queue_pairs + 1)),
                "row_bytes": In(LENGTH_BITS),
                "worker": In(stream.Signature(worker_layout(config), always_ready=True)),
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
        """One row at a time, from the queue. 1+: a state of one cycle, or as many as it must wait::

            state         cycles   what it does                                next
            IDLE          1+       awaits a row, loads its ``target``          LOOKUP
            LOOKUP        1        looks up whether the worker is excluded     OPEN
            OPEN          1+       gives the row to the streamed reads         POST, or SKIP if excluded;
                                                                               with a barrier ROUND JOIN;
                                                                               to broadcast it, ROUND WAIT
            POST          1+       posts the push                              NEXT
            SKIP          1        ends the push as skipped                    NEXT
            NEXT          1        takes the row from the queue, unless it     IDLE, or ROUND LOAD
                                   is to be pushed to another worker, too

            with a barrier, and from ROUND WAIT on for a broadcast, too:
            ROUND JOIN    1        keeps the target for the round's last row   ROUND PASS; after the last
                                                                               target ROUND WAIT
            ROUND PASS    1        takes the row from the queue: passed over   IDLE
            ROUND WAIT    1+       awaits the end of the round before          ROUND LOAD
            ROUND LOAD    1        loads a ``target`` of the round             ROUND LOOKUP
            ROUND LOOKUP  1        looks up whether the worker is excluded     ROUND SUM
            ROUND SUM     1        lets the buffer's address settle            POST, or SKIP if excluded

        The NIC completes no push that is skipped, and no row that is passed over. Their end is handled like a
        completion, in the cycle after SKIP or ROUND JOIN; completions wait in that cycle.
        """
        m = Module()
        m.submodules.queue = queue = StreamFIFO(shape=push_layout(self.config), depth=2)
        connect_typed(m, wiring.flipped(self.push), queue.i)
        round_ = _Round(m, self.config, self.workers)
        passes_over = Signal()  # 1 in ROUND PASS
        m.d.sync += [self.skipped.eq(0), passes_over.eq(0)]
        self._push(m, queue.o, round_, passes_over)
        self._end(m, queue.o.payload.row, round_, passes_over)
        return m

    def _push(self, m: Module, push: Any, round_: _Round, passes_over: Signal) -> None:
        """The states, and the registers of the push in work."""
        target = Signal(_target_layout(self.config))  # right a cycle after the queue's row, or the position
        is_excluded = Signal()  # its worker is
        names = target.shape().members
        worker = self.worker.payload
        with m.If(self.worker.valid):  # before ``start``, when no row is there
            m.d.comb += [
                round_.write.addr.eq(worker.index),
                round_.write.en.eq(1),
                *(round_.write.data[name].eq(worker[name]) for name in ("index", "remote", "rkey")),
            ]
        with m.Else():
            m.d.comb += [
                round_.write.addr.eq(round_.position),
                *(round_.write.data[name].eq(push.payload[name]) for name in names),
            ]
        m.d.sync += [
            target[name].eq(Mux(round_.pushing, round_.read.data[name], push.payload[name])) for name in names
        ]
        with m.If(self.broadcast):
            m.d.sync += target.second.eq(round_.second)
        self._describe(m, push.payload, target, is_excluded)
        with m.FSM():
            self._row_states(m, push, round_, target, is_excluded)
            self._round_states(m, push, round_, passes_over, target, is_excluded)
        with m.If(self.start):
            m.d.sync += [round_.position.eq(0), round_.second.eq(0)]

    def _describe(self, m: Module, push: Any, target: Any, is_excluded: Signal) -> None:
        """The row as the streamed reads and the NIC get it.

        The buffer's address is a sum of 64 bits, too long for one carry chain: ``low`` is right a cycle after
        ``target``, and ``high``, which needs its carry, 2 cycles after. So both are right in POST: ``target``
        is in LOOKUP or ROUND LOOKUP, 2 states before.
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
            row.words.eq(self.row_bytes[lane_bits(self.config.width) :]),
            row.memory_only.eq(is_excluded | self.barrier | self.broadcast),
            *(post[name].eq(target[name]) for name in ("index", "rkey")),
            post.remote.eq(Cat(low[:LENGTH_BITS], high)),
            post.local.eq(push.local),
            post.tag.eq(push.row),
            post.length.eq(self.row_bytes),
        ]

    def _row_states(self, m: Module, push: Any, round_: _Round, target: Any, is_excluded: Signal) -> None:
        """The states of a row with or without a barrier."""
        is_last_push = ~round_.pushing | round_.is_last  # of its row
        with m.State("IDLE"), m.If(push.valid):
            m.next = "LOOKUP"
        with m.State("LOOKUP"):
            m.d.sync += is_excluded.eq(self.excluded.bit_select(target.index, 1))
            m.next = "OPEN"
        with m.State("OPEN"):
            m.d.comb += self.row.valid.eq(1)
            with m.If(self.row.ready):
                with m.If(self.barrier):
                    m.next = "ROUND JOIN"
                with m.Elif(self.broadcast):
                    m.next = "ROUND WAIT"
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
            m.d.comb += push.ready.eq(is_last_push)
            with m.If(is_last_push):
                m.d.sync += [round_.position.eq(0), round_.pushing.eq(0)]
                m.next = "IDLE"
            with m.Else():
                m.d.sync += round_.position.eq(round_.position + 1)
                m.next = "ROUND LOAD"

    def _round_states(
        self, m: Module, push: Any, round_: _Round, passes_over: Signal, target: Any, is_excluded: Signal
    ) -> None:
        """The states of a round."""
        with m.State("ROUND JOIN"):
            m.d.comb += round_.write.en.eq(1)
            with m.If(round_.is_last):
                m.next = "ROUND WAIT"
            with m.Else():
                m.d.sync += [passes_over.eq(1), round_.position.eq(round_.position + 1)]
                m.next = "ROUND PASS"
        with m.State("ROUND PASS"):
            m.d.comb += push.ready.eq(1)
            m.next = "IDLE"
        with m.State("ROUND WAIT"), m.If(round_.has_ended):
            m.d.sync += [
                round_.position.eq(0),
                round_.pushing.eq(1),
                round_.second.eq(~round_.second),
                round_.in_flight.eq(self.workers),
            ]
            m.next = "ROUND LOAD"
        with m.State("ROUND LOAD"):
            m.next = "ROUND LOOKUP"
        with m.State("ROUND LOOKUP"):
            m.d.sync += is_excluded.eq(self.excluded.bit_select(target.index, 1))
            m.next = "ROUND SUM"
        with m.State("ROUND SUM"):
            m.next = "POST"
            with m.If(is_excluded):
                m.next = "SKIP"

    def _end(self, m: Module, current_row: Value, round_: _Round, passes_over: Signal) -> None:
        """End pushes: free a row with its last push, exclude a worker with its first failure."""
        completion = self.completion.payload
        completes = Signal()  # a completion is taken
        push_ends = Signal()
        in_rounds = self.barrier | self.broadcast
        frees = Signal()  # ``freed`` becomes free
        freed = Signal(ROW_BITS)
        completed_index = Signal.like(completion.index)
        is_done = completion.ending == Ending.DONE
        m.d.comb += [
            self.completion.ready.eq(~self.skipped & ~passes_over),
            completes.eq(self.completion.valid & self.completion.ready),
            push_ends.eq(self.skipped | completes),
        ]
        m.d.sync += [
            frees.eq(passes_over | push_ends & (~in_rounds | (round_.in_flight == 1))),
            # Not ready: a push was skipped or a row is passed over, and the row is still at the queue's head.
            freed.eq(Mux(self.completion.ready, completion.tag[:ROW_BITS], current_row)),
            self.completed.eq(completes & is_done),
            self.failed.eq(completes & ~is_done),
            completed_index.eq(completion.index),
        ]
        with m.If(self.push.valid & self.push.ready):
            m.d.sync += self.occupied.bit_select(self.push.payload.row, 1).eq(1)
        with m.If(frees):
            m.d.sync += self.occupied.bit_select(freed, 1).eq(0)
        with m.If(push_ends & in_rounds):
            m.d.sync += round_.in_flight.eq(round_.in_flight - 1)
        with m.If(self.failed):
            m.d.sync += self.excluded.bit_select(completed_index, 1).eq(1)
        with m.If(self.start):
            m.d.sync += [self.occupied.eq(0), self.excluded.eq(0), round_.in_flight.eq(0)]
