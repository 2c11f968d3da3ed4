"""What the parameter server does next: a worker is set up, or a gradient is taken and its update ordered."""

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

#: What an update consists of, taken by the parts in any order.
_COMMANDS = ("w", "gradient", "write", "order", "push")


def _entry_layout(config: RdmaConfig) -> data.StructLayout:
    """What is kept of a worker: where its next gradient will be, and the version of the one applied last.

    ``table`` is that of its set-up. The next gradient will be in ``slot`` of the table, at ``address``.
    """
    table = worker_layout(config)["table"].shape
    return data.StructLayout(
        {"table": table, "slot": SLOT_BITS, "address": config.address_width, "lgvnum": VERSION_BITS}
    )


def _peer_layout(config: RdmaConfig) -> data.StructLayout:
    """Where a worker's model buffers are, since its set-up, or since it was taken back."""
    worker = worker_layout(config)
    return data.StructLayout({name: worker[name].shape for name in ("remote", "rkey")})


class _InHand:
    """Registers of the worker that is set up or taken back, or whose gradient is applied."""

    def __init__(self, config: RdmaConfig):
        self.entry = Signal(_entry_layout(config))
        self.peer = Signal(_peer_layout(config))
        self.gradient = Signal(found_layout(config))
        self.setting_up = Signal()  # the worker is set up; of ``gradient`` only index and version count
        self.readmits = Signal()  # the worker is taken back; of ``gradient`` only the index counts

    @property
    def is_scan_end(self) -> Value:
        """No gradient, but the end of a scan."""
        return self.gradient.ends_scan

    @property
    def is_no_update(self) -> Value:
        """The end of a scan, or a worker that is taken back: the command for the pushes is the only one."""
        return self.gradient.ends_scan | self.readmits


class _Rows:
    """Registers of the newest row, and of the next one to be written."""

    def __init__(self, config: RdmaConfig):
        self.number = Signal(ROW_BITS)
        self.address = Signal(config.address_width)
        self.next_number = Signal(ROW_BITS)
        self.next_address = Signal(config.address_width)
        self.applies = Signal()  # gradients are applied; else they are sent back to the scanner
        self.may_take = (
            Signal()
        )  # ``found`` may be taken: to be sent back, or applied since the next row is free


class UpdateControl(wiring.Component):
    """Take gradients one after the other, order the update of each, and keep versions and staleness.

    Members
    -------
    ``settings`` : In, :func:`~fanin.hdl.param_server.shapes.settings_layout`
        Stable from before ``worker`` and ``start`` on.
    ``worker`` : In, stream of :func:`~fanin.hdl.param_server.shapes.worker_layout`
        A worker to be set up, before ``start``: its next gradient is 1, in the first slot of its table. Or one
        to be taken back, after ``start``: it has been excluded, and no gradient of it is in flight.
    ``start`` : In, 1
        Pulse, only while ``idle``: the newest row is row 0, and its version 0.
    ``enable`` : In, 1
        Gradients are applied; else they are sent back. An update that has begun is ended without it.
    ``version`` : Out, 32
        Updates since ``start``, counted when all commands of one have been taken.
    ``exhausted`` : Out, 1
        The largest version has been reached: gradients are sent back from then on.
    ``staleness``, ``stalest`` : Out, 64 and 32
        Sum over the updates, and largest of them: updates by others that a gradient's model had not had.
    ``found`` : In, stream of :func:`~fanin.hdl.param_server.shapes.found_layout`
        New gradients, and the ends of scans. A gradient is taken to be applied when the next row is free.
    ``looks`` : Out, 1
        One is waited for.
    ``again`` : Out, 1
        The gradient that is taken from ``found`` in this cycle is sent back: the scanner finds it again later.
    ``place`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.place_layout`, always ready
        Where a worker's next gradient will be.
    ``clear`` : Out, stream of a worker's index, always ready
        The worker has been set up: its LGVnum is 0.
    ``occupied`` : In, one bit for each row
        The row may still be read for a push: it must not be written yet.
    ``w`` : Out, stream of AxiReader's commands
        An update reads the newest row's w,
    ``gradient`` : Out, stream of AxiReader's commands
        and the gradient.
    ``write`` : Out, stream of AxiWriter's commands
        It writes the next row,
    ``order`` : Out, stream of :func:`~fanin.hdl.param_server.shapes.order_layout`
        which is made in this order,
    ``push`` : Out, stream of :func:`~fanin.hdl.param_server.pushes.push_layout`
        and pushed, alone or as one of a round. The five commands of an update are offered at once, and taken
        in any order. The end of a scan, and a worker that is taken back, are this command alone.
    ``joined`` : Out, one bit for each worker
        A gradient of the worker was taken in the current round. Right before ``place`` says where its next
        gradient will be.
    ``idle`` : Out, 1
        No update is being ordered, and no worker set up or taken back.
    ``updated`` : Out, 1
        Pulse: all commands of an update have been taken.

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    The commands 2 cycles after a gradient is taken; if each is taken at once, a gradient every 7 cycles.

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
        """A worker's *entry* is read with its gradient, and put back with the slot of the next one.

        Its states are::

            IDLE      takes a gradient once the next row is free, and reads its worker's entry; sends back a
                      gradient that is not to be applied; takes a worker to be set up, and goes on to ADVANCE;
                      or a worker to be taken back
            ORDER     offers the five commands of the update; of a scan's end, or of a worker that is taken
                      back, the push
            AWAIT     waits until all have been taken, and counts the update; back to IDLE if it was none
            ADVANCE   the gradient's age is computed; the worker's next slot enters the first of two registers
            ADVANCED  and its trailer's address the second
            STORE     puts the entry back, and tells the scanner of the slot and, after a set-up, of LGVnum 0
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
        m.submodules.ages = ages = Staleness()
        age = Signal(VERSION_BITS)
        m.d.comb += [
            ages.clear.eq(self.start),
            ages.age.eq(age),
            self.staleness.eq(ages.total),
            self.stalest.eq(ages.largest),
        ]
        with m.FSM() as fsm:
            m.d.comb += [self.idle.eq(fsm.ongoing("IDLE")), self.looks.eq(self.idle)]
            with m.State("IDLE"):
                m.d.sync += [hand.entry.eq(read.data), hand.peer.eq(peer.data)]
                self._take(m, hand, row)
            with m.State("ORDER"):
                # This comes after the assignments of ``_make_commands``, so it wins over a ready.
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
                        age.eq(self.version - hand.entry.lgvnum),  # updates since the worker's last one,
                        row.number.eq(row.next_number),
                        row.address.eq(row.next_address),
                        self.version.eq(self.version + 1),
                        self.exhausted.eq(self.version == MAX_VERSION - 1),
                    ]
                    m.next = "ADVANCE"
            with m.State("ADVANCE"):
                m.d.sync += age.eq(age - hand.gradient.others)  # less those that its model had had
                m.next = "ADVANCED"
            with m.State("ADVANCED"):
                m.next = "STORE"
            with m.State("STORE"):
                m.d.comb += [
                    write.en.eq(1),
                    self.place.valid.eq(1),
                    self.clear.valid.eq(hand.setting_up),
                    ages.add.eq(~hand.setting_up),
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
        """Rows are written in a ring: the next one, and whether an update may begin to write it.

        AWAIT changes ``number``. The last of these registers is right 3 cycles later, in STORE, before IDLE
        looks at it.
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
        """The entry of the worker in hand as STORE puts it back: a worker's slots are a ring, too.

        The entry in hand holds from IDLE to STORE: in between the slot's address takes a register, and the
        trailer's, which follows from it, another.
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
        """State IDLE: take a worker to be set up or taken back, or else a gradient or the end of a scan."""
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
                gradient.version.eq(0),  # its first gradient will be 1
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
        """Fill in the commands of an update. Returns which are pending: a bit each, until it has been taken."""
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
            self.push.payload.second.eq(gradient.version[0]),  # as ``ParamServerConfig.buffer_of`` has it
            self.push.payload.row.eq(Mux(hand.is_scan_end, row.number, row.next_number)),
            self.push.payload.local.eq(Mux(hand.is_scan_end, row.address, row.next_address)),
            self.push.payload.is_new.eq(~hand.is_no_update),
            self.push.payload.ends_round.eq(hand.is_scan_end | ~hand.readmits & self._ends_round(m)),
            self.push.payload.readmits.eq(hand.readmits),
        ]
        return pending

    def _ends_round(self, m: Module) -> Value:
        """Whether a round ends with the next update: any without ``barrier`` and ``scan``.

        It follows from the updates since ``start``, and is right 2 cycles after AWAIT.
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
