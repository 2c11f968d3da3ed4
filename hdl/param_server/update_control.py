"""Control of the parameter server: sets up workers, takes gradients and orders their updates.

The control moves no model data. For each gradient it issues five commands: read w, read the gradient, write the
next row, make that row, and push it. A worker's gradients are numbered from 1 (their version); its *LGVnum* is
the version of its gradient that was applied last. A worker's *table* is the ring of slots into which it writes
its gradients. Model rows are in a ring, too.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus import axi_reader, axi_writer
from fanin.hdl.param_server.pushes import push_layout
from fanin.hdl.param_server.shapes import (
    ROW_BITS,
    SLOT_BITS,
    VERSION_BITS,
    found_layout,
    order_layout,
    place_layout,
    settings_layout,
    worker_layout,
)
from fanin.hdl.param_server.staleness import Staleness
from fanin.hdl.rdma.queue_pair import index_bits
from fanin.param_server.facts import MAX_ROWS, MAX_VERSION
from fanin.rdma.facts import RdmaConfig

#: Commands of an update; the parts take them in any order.
_COMMANDS = ("w", "gradient", "write", "order", "push")


def _entry_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a worker's entry.

    ``table``: address of the worker's gradients, from its set-up.
    ``slot``: slot of the table for the next gradient.
    ``address``: address of that slot.
    ``lgvnum``: version of the gradient applied last.
    """
    table = worker_layout(config)["table"].shape
    return data.StructLayout(
        {"table": table, "slot": SLOT_BITS, "address": config.address_width, "lgvnum": VERSION_BITS}
    )


def _peer_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a worker's model buffers, from its set-up or its readmission."""
    worker = worker_layout(config)
    return data.StructLayout({name: worker[name].shape for name in ("remote", "rkey")})


class _InHand:
    """Registers of the worker in hand, which is being set up or readmitted, or whose gradient is applied."""

    def __init__(self, config: RdmaConfig):
        self.entry = Signal(_entry_layout(config))
        self.peer = Signal(_peer_layout(config))
        self.gradient = Signal(found_layout(config))
        self.setting_up = Signal()  # the worker is being set up; ``gradient`` has only index and version
        self.readmits = Signal()  # the worker is being readmitted; only the index of ``gradient`` is valid

    @property
    def is_scan_end(self) -> Value:
        """True for the end of a scan instead of a gradient."""
        return self.gradient.ends_scan

    @property
    def is_no_update(self) -> Value:
        """True for a scan's end or a readmission: only the command for the pushes is issued."""
        return self.gradient.ends_scan | self.readmits


class _Rows:
    """Registers of the newest row, and of the next row to write."""

    def __init__(self, config: RdmaConfig):
        self.number = Signal(ROW_BITS)
        self.address = Signal(config.address_width)
        self.next_number = Signal(ROW_BITS)
        self.next_address = Signal(config.address_width)
        self.applies = Signal()  # gradients are applied; 0: they are sent back to the scanner
        self.may_take = Signal()  # a gradient may be taken: the next row is free, or ``applies`` is 0


class UpdateControl(wiring.Component):
    """Control that takes gradients in turn, orders the update of each, and keeps versions and staleness.

    Members
    -------
    ``settings`` : In, :func:`~fanin.hdl.param_server.shapes.settings_layout`
        Sizes and mode; stable from before ``worker`` and ``start`` on.
    ``worker`` : In, stream of :func:`~fanin.hdl.param_server.shapes.worker_layout`
        Workers to set up, before ``start``: the next gradient has version 1 and is in the table's first slot.
        Workers to readmit, after ``start``: excluded, and without a gradient in flight.
    ``start`` : In, 1
        Pulse: the newest row is row 0 with version 0. Allowed only while ``idle``.
    ``enable`` : In, 1
        1: gradients are applied. 0: gradients are sent back. An update that has begun finishes either way.
    ``version`` : Out, 32
        Updates since ``start``; counted when all commands of an update have been taken.
    ``exhausted`` : Out, 1
        The largest version is reached: from then on gradients are sent back.
    ``staleness``, ``stalest`` : Out, 64 and 32
        Sum and maximum of the staleness of all updates. Staleness of a gradient: updates by other workers that
        its model did not include.
    ``found`` : In, stream of :func:`~fanin.hdl.param_server.shapes.found_layout`
        New gradients and ends of scans. A gradient to apply is taken only when the next row is free.
    ``looks`` : Out, 1
        The control waits for ``found``.
    ``again`` : Out, 1
        The gradient that is taken from ``found`` in this cycle is sent back: the scanner finds it again later.
    ``place`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.place_layout`, always ready
        Location of a worker's next gradient.
    ``clear`` : Out, stream of a worker's index, always ready
        The worker has been set up: its LGVnum is 0.
    ``occupied`` : In, one bit for each row
        The row may still be read for a push and must not be overwritten.
    ``w`` : Out, stream of AxiReader's commands
        Command to read the newest row's w. The five commands of an update are offered together and taken in
        any order.
    ``gradient`` : Out, stream of AxiReader's commands
        Command to read the gradient.
    ``write`` : Out, stream of AxiWriter's commands
        Command to write the next row.
    ``order`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.order_layout`
        Command to make the next row.
    ``push`` : Out, stream of :func:`~fanin.hdl.param_server.pushes.push_layout`
        Command to push the row, alone or as one of a round. A scan's end and a readmission consist of this
        command only.
    ``joined`` : Out, one bit for each worker
        A gradient of the worker was taken in the current round. Valid before ``place`` gives the location of
        the worker's next gradient.
    ``idle`` : Out, 1
        No update is being ordered, and no worker is being set up or readmitted.
    ``updated`` : Out, 1
        Pulse: all commands of an update have been taken.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs, and widths.

    Latency
    -------
    Commands follow 2 cycles after a gradient is taken. One gradient every 7 cycles if each command is taken
    immediately.

    Source
    ------
    RDMA-wild, section 4.2, algorithm 1; docs/systems/param-server-hardware.md.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        read = stream.Signature(axi_reader.command_layout(config.address_width))
        super().__init__(
            {
                "settings": In(settings_layout(config)),
                "worker": In(stream.Signature(worker_layout(config))),
                "start": In(1),
                "enable": In(1),
                "version": Out(VERSION_BITS),
                "exhausted": Out(1),
                "staleness": Out(64),
                "stalest": Out(VERSION_BITS),
                "found": In(stream.Signature(found_layout(config))),
                "looks": Out(1),
                "again": Out(1),
                "place": Out(stream.Signature(place_layout(config), always_ready=True)),
                "clear": Out(stream.Signature(index_bits(config), always_ready=True)),
                "occupied": In(MAX_ROWS),
                "w": Out(read),
                "gradient": Out(read),
                "write": Out(stream.Signature(axi_writer.command_layout(config.address_width))),
                "order": Out(stream.Signature(order_layout(config))),
                "push": Out(stream.Signature(push_layout(config))),
                "joined": Out(config.queue_pairs),
                "idle": Out(1),
                "updated": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read a worker's *entry* with its gradient, and write it back with the slot of the next gradient.

        States::

            IDLE      takes a gradient when the next row is free, and reads its worker's entry; or sends back a
                      gradient that is not to be applied; or takes a worker to set up, next is ADVANCE; or
                      takes a worker to readmit
            ORDER     offers the five commands of the update; for a scan's end or a readmission, only the push
            AWAIT     waits until all are taken, and counts the update; next is IDLE if there was no update
            ADVANCE   computes the gradient's staleness; the worker's next slot enters the first of 2 registers
            ADVANCED  the trailer's address enters the second register
            STORE     writes the entry back, and gives the scanner the slot and, after a set-up, LGVnum 0
        """
        m = Module()
        hand = _InHand(self.config)
        m.submodules.entries = entries = Memory(
            shape=hand.entry.shape(), depth=self.config.queue_pairs, init=[]
        )
        read, write = entries.read_port(domain="comb"), entries.write_port()
        m.submodules.peers = peers = Memory(shape=hand.peer.shape(), depth=self.config.queue_pairs, init=[])
        peer, new_peer = peers.read_port(domain="comb"), peers.write_port()
        m.d.comb += [
            *(port.addr.eq(self.found.payload.index) for port in (read, peer)),
            write.addr.eq(hand.gradient.index),
            new_peer.addr.eq(self.worker.payload.index),
            new_peer.en.eq(self.worker.valid & self.worker.ready),
            *(new_peer.data[name].eq(self.worker.payload[name]) for name in hand.peer.shape().members),
        ]
        row = self._make_rows(m)
        self._advance_slot(m, hand, write.data)
        pending = self._make_commands(m, hand, row)
        m.submodules.totals = totals = Staleness()
        staleness = Signal(VERSION_BITS)
        m.d.comb += [
            totals.clear.eq(self.start),
            totals.age.eq(staleness),
            self.staleness.eq(totals.total),
            self.stalest.eq(totals.largest),
        ]
        with m.FSM() as fsm:
            m.d.comb += [self.idle.eq(fsm.ongoing("IDLE")), self.looks.eq(self.idle)]
            with m.State("IDLE"):
                m.d.sync += [hand.entry.eq(read.data), hand.peer.eq(peer.data)]
                self._take(m, hand, row)
            with m.State("ORDER"):
                # Later assignments win: a command that is ready now does not clear its bit.
                m.d.sync += pending.eq(Mux(hand.is_no_update, 1 << _COMMANDS.index("push"), -1))
                m.next = "AWAIT"
            with m.State("AWAIT"), m.If(pending == 0):
                m.next = "IDLE"
                with m.If(self.push.payload.ends_round):
                    m.d.sync += self.joined.eq(0)
                with m.Elif(~hand.readmits):
                    m.d.sync += self.joined.bit_select(hand.gradient.index, 1).eq(1)
                with m.If(~hand.is_no_update):
                    m.d.comb += self.updated.eq(1)
                    m.d.sync += [
                        staleness.eq(self.version - hand.entry.lgvnum),  # all updates but this worker's own
                        row.number.eq(row.next_number),
                        row.address.eq(row.next_address),
                        self.version.eq(self.version + 1),
                        self.exhausted.eq(self.version == MAX_VERSION - 1),
                    ]
                    m.next = "ADVANCE"
            with m.State("ADVANCE"):
                # Less the updates by other workers that the gradient's model included.
                m.d.sync += staleness.eq(staleness - hand.gradient.others)
                m.next = "ADVANCED"
            with m.State("ADVANCED"):
                m.next = "STORE"
            with m.State("STORE"):
                m.d.comb += [
                    write.en.eq(1),
                    self.place.valid.eq(1),
                    self.clear.valid.eq(hand.setting_up),
                    totals.add.eq(~hand.setting_up),
                ]
                m.next = "IDLE"
        with m.If(self.start):
            m.d.sync += [
                row.number.eq(0),
                row.address.eq(self.settings.base),
                self.version.eq(0),
                self.exhausted.eq(0),
                self.joined.eq(0),
            ]
        return m

    def _make_rows(self, m: Module) -> _Rows:
        """Compute the next row of the ring of rows, and whether an update may begin to write it.

        AWAIT changes ``number``. The last of these registers is valid 3 cycles later, in STORE, before IDLE
        reads it.
        """
        settings = self.settings
        row = _Rows(self.config)
        is_last = row.number + 1 == settings.rows
        m.d.sync += [
            row.next_number.eq(Mux(is_last, 0, row.number + 1)),
            row.next_address.eq(Mux(is_last, settings.base, row.address + settings.row_bytes)),
            row.applies.eq(self.enable & ~self.exhausted),
            row.may_take.eq(~self.enable | self.exhausted | ~self.occupied.bit_select(row.next_number, 1)),
        ]
        return row

    def _advance_slot(self, m: Module, hand: _InHand, new_entry: Any) -> None:
        """Compute the current worker's entry for STORE; a worker's slots form a ring.

        The entry is constant from IDLE to STORE. Meanwhile the slot's address is registered, and then the
        trailer's address, which depends on it.
        """
        settings, entry, gradient = self.settings, hand.entry, hand.gradient
        slot = Signal.like(entry.slot)
        address = Signal.like(entry.address)
        trailer = Signal.like(address)
        is_last = entry.slot + 1 == settings.slots
        m.d.sync += [
            slot.eq(Mux(is_last, 0, entry.slot + 1)),
            address.eq(Mux(is_last, entry.table, entry.address + settings.slot_bytes)),
            trailer.eq(address + settings.gradient_bytes),
        ]
        m.d.comb += [
            new_entry.table.eq(entry.table),
            new_entry.slot.eq(slot),
            new_entry.address.eq(address),
            new_entry.lgvnum.eq(gradient.version),
            self.place.payload.index.eq(gradient.index),
            self.place.payload.trailer.eq(trailer),
            self.place.payload.lgvnum.eq(gradient.version),
            self.clear.payload.eq(gradient.index),
        ]

    def _take(self, m: Module, hand: _InHand, row: _Rows) -> None:
        """Build state IDLE: take a worker to set up or readmit, else a gradient or the end of a scan."""
        entry, gradient, worker = hand.entry, hand.gradient, self.worker.payload
        m.d.sync += [
            hand.setting_up.eq(self.worker.valid),
            hand.readmits.eq(self.worker.valid & worker.readmits),
            gradient.eq(self.found.payload),
        ]
        with m.If(self.worker.valid):
            m.d.comb += self.worker.ready.eq(1)
            m.d.sync += [
                gradient.index.eq(worker.index),
                gradient.version.eq(0),  # its first gradient has version 1
                gradient.ends_scan.eq(0),
                *(hand.peer[name].eq(worker[name]) for name in hand.peer.shape().members),
                entry.table.eq(worker.table),
                entry.slot.eq(0),
                entry.address.eq(worker.table),
            ]
            m.next = "ADVANCE"
            with m.If(worker.readmits):
                m.next = "ORDER"
        with m.Elif(self.found.valid & self.found.payload.ends_scan):
            m.d.comb += self.found.ready.eq(1)
            m.next = "ORDER"
        with m.Elif(row.may_take):
            m.d.comb += [self.found.ready.eq(1), self.again.eq(~row.applies)]
            with m.If(self.found.valid & row.applies):
                m.next = "ORDER"

    def _make_commands(self, m: Module, hand: _InHand, row: _Rows) -> Signal:
        """Fill in the commands of an update; return one bit for each command that has not been taken."""
        settings, entry, gradient = self.settings, hand.entry, hand.gradient
        word_bytes = self.config.width // 8
        pending = Signal(len(_COMMANDS))
        for name, bit in zip(_COMMANDS, pending, strict=True):
            command = getattr(self, name)
            m.d.comb += command.valid.eq(bit)
            with m.If(command.ready):
                m.d.sync += bit.eq(0)
        m.d.comb += [
            self.w.payload.address.eq(row.address + word_bytes),  # after the head of the newest row
            self.w.payload.beats.eq(settings.words),
            self.w.payload.repeats.eq(1),
            self.gradient.payload.address.eq(entry.address),
            self.gradient.payload.beats.eq(settings.words),
            self.gradient.payload.repeats.eq(1),
            self.write.payload.address.eq(row.next_address),
            self.write.payload.beats.eq(settings.row_bytes[(word_bytes - 1).bit_length() :]),
            self.order.payload.index.eq(gradient.index),
            self.order.payload.version.eq(self.version + 1),
            self.order.payload.lgvnum.eq(gradient.version),
            self.push.payload.index.eq(gradient.index),
            *(self.push.payload[name].eq(hand.peer[name]) for name in hand.peer.shape().members),
            self.push.payload.second.eq(gradient.version[0]),  # same rule as ``ParamServerConfig.buffer_of``
            self.push.payload.row.eq(Mux(hand.is_scan_end, row.number, row.next_number)),
            self.push.payload.local.eq(Mux(hand.is_scan_end, row.address, row.next_address)),
            self.push.payload.is_new.eq(~hand.is_no_update),
            self.push.payload.ends_round.eq(hand.is_scan_end | ~hand.readmits & self._ends_round(m)),
            self.push.payload.readmits.eq(hand.readmits),
        ]
        return pending

    def _ends_round(self, m: Module) -> Value:
        """Return whether the next update ends a round; without ``barrier`` and ``scan`` every update does.

        The result depends on the updates since ``start`` and is valid 2 cycles after AWAIT.
        """
        settings = self.settings
        members = Signal.like(settings.workers)  # gradients of the round, with a barrier
        is_last = Signal()
        m.d.sync += is_last.eq(members + 1 == settings.workers)
        with m.If(self.updated):
            m.d.sync += members.eq(Mux(is_last, 0, members + 1))
        with m.If(self.start):
            m.d.sync += members.eq(0)
        return ~settings.scan & (~settings.barrier | is_last)
