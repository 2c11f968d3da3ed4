"""The parameter server: it finds gradients in memory, updates the model, and pushes it back, beside a NIC."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import AXI4ReadSignature, AXI4WriteSignature, Resp
from fanin.hdl.bus.axi_reader import AxiReader
from fanin.hdl.bus.axi_writer import AxiWriter
from fanin.hdl.param_server.pushes import Pushes
from fanin.hdl.param_server.read_gate import ReadGate
from fanin.hdl.param_server.row import RowMaker, tail_words
from fanin.hdl.param_server.scanner import Scanner
from fanin.hdl.param_server.shapes import (
    FLOAT_BITS,
    ROW_BITS,
    SLOT_BITS,
    VERSION_BITS,
    found_layout,
    settings_layout,
    worker_layout,
)
from fanin.hdl.param_server.streamed_reads import StreamedReads
from fanin.hdl.param_server.update import UpdateLanes
from fanin.hdl.rdma.queue_pair import completion_layout, write_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork
from fanin.param_server import MAX_VERSION
from fanin.rdma import RdmaConfig

BURST = 16  # words
_STREAM_WORDS = 64  # that a row is ahead of the NIC


class ServerEvents(data.Struct):
    """What happened, a pulse each, for counters and measurement."""

    updates: 1  #: a gradient was taken, an update begins
    made: 1  #: a word of a row was made
    pushes: 1  #: a row was posted
    completed: 1  #: and the worker has it
    failed: 1  #: or its queue pair has ended
    let_go: 1  #: the rest of a row went by way of memory alone
    memory_errors: 1  #: a response of memory was an error; those of a cycle count once


class ParamServer(wiring.Component):
    """Apply the workers' gradients as they come, and push the model back to the worker of each.

    With the setting ``barrier`` it is pushed to all workers instead, behind a gradient of each (Sync-DSGD).

    Members
    -------
    ``settings`` : In, :func:`~fanin.hdl.param_server.shapes.settings_layout`
        Stable from before ``worker`` and ``start`` on.
    ``worker`` : In, stream of :func:`~fanin.hdl.param_server.shapes.worker_layout`
        Every worker, before ``start``: its next gradient is 1.
    ``start`` : In, 1
        Pulse: w is in row 0, and its version is 0; only while not ``busy``.
    ``enable`` : In, 1
        Gradients are taken; what was begun is ended without it.
    ``post`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
    ``completion`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.completion_layout`
        Of the NIC.
    ``nic`` : In, AXI4 read port
        The NIC's.
    ``memory`` : Out, AXI4 read port
        What the NIC reads of memory.
    ``rows_read``, ``rows_write`` : Out, AXI4 ports
        w, and the rows that are made.
    ``table`` : Out, AXI4 read port
        The gradients.
    ``scan`` : Out, AXI4 read port
        Their trailers. All ports are to the same memory, which shows what is written in the order of writing.
    ``version`` : Out, 32
        Updates begun since ``start``.
    ``busy`` : Out, 1
        An update or a push is not complete, or a read under way.
    ``exhausted`` : Out, 1
        There is no version left: nothing is taken any more.
    ``gone`` : Out, one bit for each worker
        A push to it has failed. It is left out.
    ``staleness``, ``stalest`` : Out, 64 and 32
        Sum over the updates, and largest of them: updates by others that a gradient's model had not had.
    ``events`` : Out, ServerEvents

    Parameters
    ----------
    ``config`` : RdmaConfig
    ``patience`` : int, cycles
        Without a read by the NIC, until the rest of a row is let go.

    Latency
    -------
    A word of a row every cycle, across rows that are longer than a write and a read of memory take together and
    60 words; shorter ones take that time each.

    Source
    ------
    RDMA-wild, section 4.2, algorithm 1; docs/systems/param-server.md.
    """

    def __init__(self, *, config: RdmaConfig, patience: int = 4096):
        self.config = config
        self.patience = patience
        axi = {"data_width": config.width, "address_width": config.address_width}
        read = AXI4ReadSignature(**axi)
        super().__init__(
            {
                "settings": In(settings_layout(config)),
                "worker": In(stream.Signature(worker_layout(config))),
                "start": In(1),
                "enable": In(1),
                "post": Out(stream.Signature(write_layout(config))),
                "completion": In(stream.Signature(completion_layout(config))),
                "nic": In(read),
                "memory": Out(read),
                "rows_read": Out(read),
                "rows_write": Out(AXI4WriteSignature(**axi)),
                "table": Out(read),
                "scan": Out(read),
                "version": Out(VERSION_BITS),
                "busy": Out(1),
                "exhausted": Out(1),
                "gone": Out(config.queue_pairs),
                "staleness": Out(64),
                "stalest": Out(VERSION_BITS),
                "events": Out(ServerEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Control in front; rows are made behind; each goes to memory and to the NIC at once."""
        m = Module()
        config = self.config
        self._events = {name: Signal(name=name) for name in ServerEvents.as_shape().members}
        m.submodules.scanner = self._scanner = scanner = Scanner(config=config)
        m.submodules.maker = self._maker = maker = RowMaker(config=config)
        m.submodules.pushes = self._pushes = pushes = Pushes(config=config)
        m.submodules.streamed = self._streamed = StreamedReads(
            config=config, depth=_STREAM_WORDS, patience=self.patience
        )
        connect_typed(m, scanner.axi, flipped(self.scan))
        connect_typed(m, flipped(self.nic), self._streamed.nic)
        connect_typed(m, self._streamed.memory, flipped(self.memory))
        connect_typed(m, pushes.row, self._streamed.row)
        connect_typed(m, pushes.post, flipped(self.post))
        connect_typed(m, flipped(self.completion), pushes.completion)
        m.d.comb += [
            scanner.enable.eq(self.enable & ~self.exhausted),
            scanner.workers.eq(self.settings.workers),
            scanner.gone.eq(self.gone),
            maker.workers.eq(self.settings.workers),
            maker.words.eq(self.settings.words),
            *(getattr(pushes, name).eq(self.settings[name]) for name in ("barrier", "workers", "row_bytes")),
            pushes.start.eq(self.start),
            self.gone.eq(pushes.gone),
            self._events["pushes"].eq(pushes.pushed),
            self._events["completed"].eq(pushes.completed),
            self._events["failed"].eq(pushes.failed),
        ]
        self._rows(m)
        self._control(m)
        m.d.comb += [self.events[name].eq(event) for name, event in self._events.items()]
        return m

    def _rows(self, m: Module) -> None:
        """w and gradient to the lanes; rows to memory and to the NIC."""
        config, scanner, maker, streamed = self.config, self._scanner, self._maker, self._streamed
        axi = {"data_width": config.width, "address_width": config.address_width, "burst": BURST}
        m.submodules.w = self._w = w = AxiReader(**axi)
        m.submodules.gradients = self._gradients = gradients = AxiReader(**axi)
        m.submodules.writer = self._writer = writer = AxiWriter(**axi)
        m.submodules.gate = self._gate = gate = ReadGate(config=config)
        m.submodules.lanes = lanes = UpdateLanes(lanes=config.width // FLOAT_BITS)
        m.submodules.fork = fork = StreamFork(shape=maker.o.payload.shape())
        connect_typed(m, w.axi, gate.reader)
        connect_typed(m, gate.axi, flipped(self.rows_read))
        connect_typed(m, gradients.axi, flipped(self.table))
        connect_typed(m, writer.axi, flipped(self.rows_write))
        connect_typed(m, w.o, lanes.w)
        connect_typed(m, gradients.o, lanes.gradient)
        connect_typed(m, lanes.o, maker.updated)
        connect_typed(m, maker.o, fork.i)
        to_memory, to_nic = fork.o
        m.d.comb += [
            lanes.step.eq(self.settings.step),
            gate.start.eq(self.start),
            gate.words.eq(self.settings.words),
            gate.landed.eq(writer.landed),
            streamed.landed.eq(writer.landed),
            writer.i.valid.eq(to_memory.valid),
            writer.i.payload.data.eq(to_memory.payload.data),
            writer.i.payload.strobe.eq(-1),
            to_memory.ready.eq(writer.i.ready),
            streamed.i.valid.eq(to_nic.valid),
            streamed.i.payload.eq(to_nic.payload),
            to_nic.ready.eq(streamed.i.ready),
            self._events["made"].eq(fork.i.valid & fork.i.ready),
            self._events["let_go"].eq(streamed.let_go),
        ]
        m.d.sync += gate.tail.eq(tail_words(self.settings.workers, width=config.width))
        errors = Signal(3)
        m.d.sync += errors.eq(
            Cat(
                *(port.rvalid & (port.rresp != Resp.OKAY) for port in (self.rows_read, self.table)),
                self.rows_write.bvalid & (self.rows_write.bresp != Resp.OKAY),
            )
        )
        m.d.comb += self._events["memory_errors"].eq(errors.any() | scanner.error)

    def _control(self, m: Module) -> None:
        """A worker set up, or a gradient taken: what is known of the worker is read, changed and put back."""
        known, write = self._workers(m)
        self._advance_row(m)
        self._add_up_ages(m)
        self._advance_slot(m)
        setting_up = self._setting_up = Signal()
        fsm = self._states(m, known.data, self._commands(m))
        stores = Signal()  # in state STORE, without its decoding
        m.d.sync += stores.eq(fsm.ongoing("FIND"))
        m.d.comb += [
            write.en.eq(stores),
            self._scanner.place.valid.eq(stores),
            self._maker.clear.valid.eq(stores & setting_up),
        ]
        with m.If(self.start):
            m.d.sync += [
                self._number.eq(0),
                self._row.eq(self.settings.base),
                *(port.eq(0) for port in (self.version, self.exhausted, self.stalest)),
                *(half.eq(0) for half in (self._sum_low, self._sum_high)),
            ]
        parts = (self._w, self._gradients, self._writer)
        m.d.sync += self.busy.eq(
            ~fsm.ongoing("IDLE")
            | self._scanner.busy
            | self._pushes.occupied.any()
            | Cat(part.busy for part in parts).any()
        )

    def _workers(self, m: Module) -> tuple[Any, Any]:
        """What is known of the worker that comes first, and the one in hand with its next slot, put back."""
        config, place = self.config, self._scanner.place
        worker = worker_layout(config)
        state = data.StructLayout(
            {name: worker[name].shape for name in ("table", "remote", "rkey")}
            | {"slot": SLOT_BITS, "address": config.address_width, "lgvnum": VERSION_BITS}
        )
        m.submodules.workers = workers = Memory(shape=state, depth=config.queue_pairs, init=[])
        read, write = workers.read_port(domain="comb"), workers.write_port()
        entry = self._entry = Signal(state)  # of the worker in hand
        found = self._found = Signal(found_layout(config))
        slot = self._slot = Signal(SLOT_BITS)  # that comes next, and where
        address = self._address = Signal(config.address_width)
        trailer = self._trailer = Signal(config.address_width)
        m.d.comb += [
            read.addr.eq(self._scanner.o.payload.index),
            write.addr.eq(found.index),
            *(write.data[name].eq(entry[name]) for name in ("table", "remote", "rkey")),
            write.data.slot.eq(slot),
            write.data.address.eq(address),
            write.data.lgvnum.eq(found.version),
            place.payload.index.eq(found.index),
            place.payload.trailer.eq(trailer),
            place.payload.lgvnum.eq(found.version),
            self._maker.clear.payload.eq(found.index),
        ]
        return read, write

    def _advance_row(self, m: Module) -> None:
        """The row that the next update writes; whether it may begin."""
        settings = self.settings
        number = self._number = Signal(ROW_BITS)  # of the newest row, and where it is
        row = self._row = Signal(self.config.address_width)
        next_number = self._next_number = Signal.like(number)
        next_row = self._next_row = Signal.like(row)
        is_last_row = Signal()
        wanted = self.enable & ~self.exhausted
        takes = self._takes = Signal()  # a gradient; else none is left waiting for the next run
        decides = self._decides = Signal()  # takes none, or has a free row for it
        # All of it is known 4 cycles after ``number`` has changed, when the next gradient may be taken.
        m.d.sync += [
            is_last_row.eq(number + 1 == settings.rows),
            next_number.eq(Mux(is_last_row, 0, number + 1)),
            next_row.eq(Mux(is_last_row, settings.base, row + settings.row_bytes)),
            takes.eq(wanted),
            decides.eq(~wanted | ~self._pushes.occupied.bit_select(next_number, 1)),
        ]

    def _add_up_ages(self, m: Module) -> None:
        """The staleness of all, with a carry that the upper half takes a cycle later."""
        sum_low = self._sum_low = Signal(VERSION_BITS + 1)
        sum_high = self._sum_high = Signal(len(self.staleness) - VERSION_BITS)
        m.d.comb += self.staleness.eq(Cat(sum_low[:VERSION_BITS], sum_high))
        m.d.sync += [sum_low[VERSION_BITS].eq(0), sum_high.eq(sum_high + sum_low[VERSION_BITS])]

    def _advance_slot(self, m: Module) -> None:
        """Where the next gradient of the worker in hand will be; they take turns in its slots."""
        settings, entry = self.settings, self._entry
        is_last_slot = Signal()
        m.d.comb += is_last_slot.eq(entry.slot + 1 == settings.slots)
        # The worker in hand is the same from ``IDLE`` to ``STORE``: two cycles are enough.
        m.d.sync += [
            self._slot.eq(Mux(is_last_slot, 0, entry.slot + 1)),
            self._address.eq(Mux(is_last_slot, entry.table, entry.address + settings.slot_bytes)),
            self._trailer.eq(self._address + settings.gradient_bytes),
        ]

    def _states(self, m: Module, known: Any, wanted: Signal) -> Any:
        """What comes first is taken in hand, ordered if it is a gradient, and put back in state STORE."""
        entry, found, sum_low = self._entry, self._found, self._sum_low
        age = Signal(VERSION_BITS)  # updates since the worker's last one, less those that its model had had
        with m.FSM() as fsm:
            with m.State("IDLE"):
                self._take(m, known)
            with m.State("ORDER"):
                m.d.sync += wanted.eq(-1)
                m.next = "BEGIN"
            with m.State("BEGIN"), m.If(~wanted.any()):
                m.d.sync += [
                    age.eq(self.version - entry.lgvnum),
                    self._number.eq(self._next_number),
                    self._row.eq(self._next_row),
                    self.version.eq(self.version + 1),
                    self.exhausted.eq(self.version == MAX_VERSION - 1),
                ]
                m.d.comb += self._events["updates"].eq(1)
                m.next = "ADVANCE"
            with m.State("ADVANCE"):
                m.d.sync += age.eq(age - found.others)
                m.next = "FIND"
            with m.State("FIND"):
                m.next = "STORE"
            with m.State("STORE"):
                with m.If(~self._setting_up):
                    m.d.sync += sum_low.eq(sum_low[:VERSION_BITS] + age)
                    with m.If(age > self.stalest):
                        m.d.sync += self.stalest.eq(age)
                m.next = "IDLE"
        return fsm

    def _take(self, m: Module, known: Any) -> None:
        """State IDLE: a worker to be set up, or a gradient and what is ``known`` of its worker."""
        taken, entry, found = self._scanner.o, self._entry, self._found
        # In hand is what comes first, taken or not: that depends on little.
        m.d.sync += [self._setting_up.eq(self.worker.valid), found.eq(taken.payload), entry.eq(known)]
        with m.If(self.worker.valid):
            said = self.worker.payload
            m.d.comb += self.worker.ready.eq(1)
            m.d.sync += [
                found.index.eq(said.index),
                found.version.eq(0),
                *(entry[name].eq(said[name]) for name in ("table", "remote", "rkey")),
                entry.slot.eq(0),
                entry.address.eq(said.table),
            ]
            m.next = "ADVANCE"  # the first gradient is 1
        with m.Elif(self._decides):
            m.d.comb += [taken.ready.eq(1), self._scanner.again.eq(~self._takes)]
            with m.If(taken.valid & self._takes):
                m.next = "ORDER"

    def _commands(self, m: Module) -> Signal:
        """What an update needs of everyone, each when it can take it: a bit each that is high until then."""
        settings, w, gradients, writer = self.settings, self._w, self._gradients, self._writer
        entry, found, next_row = self._entry, self._found, self._next_row
        word_bytes = self.config.width // 8
        order, push = self._maker.order, self._pushes.push
        ends = (w.command, gradients.command, writer.command, order, push)
        wanted = Signal(len(ends))
        for end, bit in zip(ends, wanted, strict=True):
            m.d.comb += end.valid.eq(bit)
            with m.If(end.ready):
                m.d.sync += bit.eq(0)
        row_words = settings.row_bytes[(word_bytes - 1).bit_length() :]
        from_row = Signal(self.config.address_width)
        new_version = Signal(VERSION_BITS)
        m.d.sync += [from_row.eq(self._row + word_bytes), new_version.eq(self.version + 1)]
        m.d.comb += [
            w.command.payload.address.eq(from_row),
            w.command.payload.beats.eq(settings.words),
            w.command.payload.repeats.eq(1),
            gradients.command.payload.address.eq(entry.address),
            gradients.command.payload.beats.eq(settings.words),
            gradients.command.payload.repeats.eq(1),
            writer.command.payload.address.eq(next_row),
            writer.command.payload.beats.eq(row_words),
            order.payload.index.eq(found.index),
            order.payload.version.eq(new_version),
            order.payload.lgvnum.eq(found.version),
            push.payload.index.eq(found.index),
            push.payload.rkey.eq(entry.rkey),
            push.payload.remote.eq(entry.remote),
            push.payload.second.eq(found.version[0]),  # they take turns: ``ParamServerConfig.buffer_of``
            push.payload.row.eq(self._next_number),
            push.payload.local.eq(next_row),
        ]
        return wanted
