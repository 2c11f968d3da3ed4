"""GLM node: a worker with its memory read ports, registers, transport and MAC ports."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from amaranth import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.glm.facts import ENTRY_BITS, MAX_RUN_MICRO_BATCHES, GlmConfig, Partitioning
from fanin.hdl.aggregation.job import FrameFaults, JobConfig, TransportCounters
from fanin.hdl.aggregation.transport import AggTransport
from fanin.hdl.bus.axi4 import OUTSTANDING, AXI4LiteSignature, AXI4ReadSignature
from fanin.hdl.bus.axi_reader import AxiReader
from fanin.hdl.bus.common_registers import drive_constants, drive_counters
from fanin.hdl.bus.port_use import PortUse, page_burst
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.emit import shared
from fanin.hdl.glm.address_check import AddressCheck
from fanin.hdl.glm.data_parallel import DataParallelWorker
from fanin.hdl.glm.decay import NodeDecay
from fanin.hdl.glm.model_window import ModelWindow
from fanin.hdl.glm.node_control import NodeControl
from fanin.hdl.glm.node_registers import (
    FAULT_COUNTERS,
    ROUND_TRIPS,
    STALLS,
    Failure,
    node_constants,
    node_registers,
)
from fanin.hdl.glm.run_check import RunCheck
from fanin.hdl.glm.shapes import EngineShape
from fanin.hdl.glm.sparse_list import Entry
from fanin.hdl.glm.sparse_worker import SparseWorker
from fanin.hdl.glm.worker import GlmWorker, Training
from fanin.hdl.net.control.frame_merger import FrameMerger
from fanin.hdl.net.ping import PingResponder
from fanin.hdl.stream.buffer import RegisterSlice, SkidBuffer
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream

BURST = 16  # maximum words of a read burst
_JOB_FIELDS = {"job": "job_id", "base": "slot_base"}  # fields of ``JobConfig`` whose register has another name


class NodeEvents(data.Struct):
    """One-cycle pulses for measurement; each occurs once for every micro-batch, in order.

    - ``forward_first``, ``forward_last``: engine 0 took the first or last word in the previous cycle.
    - ``pa``: the transport takes the PA.
    - ``fa``: the transport hands over the FA.
    - ``backward_first``, ``backward_last``: backward took the first or last word in the previous cycle.
    - ``agg``: the AGG is on ``mac_tx``.
    """

    forward_first: 1
    forward_last: 1
    pa: 1
    fa: 1
    backward_first: 1
    backward_last: 1
    agg: 1


class NodeState(data.Struct):
    """State of a node, as in the register ``status``: a run is in progress, or it has failed."""

    running: 1
    failed: 1


def worker_class(config: GlmConfig) -> type[GlmWorker]:
    """Return the class of worker for a node's mode; a sparse one has further ports."""
    if config.sparse:
        return SparseWorker
    return DataParallelWorker if config.mode is Partitioning.DATA_PARALLEL else GlmWorker


def make_worker(config: GlmConfig) -> GlmWorker:
    """Return the worker of a node."""
    size: dict[str, Any] = {
        "engines": config.engines,
        "lanes": config.lanes,
        "banks": config.banks,
        "depth": config.depth,
        "fifo_depth": config.sample_fifo,
        "frac": config.frac,
        "loss_lanes": config.loss_lanes,
    }
    options: dict[str, Any] = {"l2": config.l2}
    if config.vanilla:
        options["vanilla"] = config.slots // config.protocol.slots_per_operation
    if config.mode is Partitioning.DATA_PARALLEL:
        options["gradient_values"] = config.gradient_values
    return worker_class(config)(**size, **options)


def max_mini_batch(config: GlmConfig) -> int:
    """Return the maximum number of micro-batches in a mini-batch."""
    width = EngineShape.as_shape()["mini_batch"].width
    return MAX_RUN_MICRO_BATCHES if config.mode is Partitioning.DATA_PARALLEL else (1 << width) - 1


@dataclass
class _Parts:
    """Submodules of a node, under the names of the fields."""

    registers: Any
    control: Any
    check: Any
    addresses: Any
    worker: Any
    transport: Any
    window: Any

    def __post_init__(self) -> None:
        self.lists_ok = Signal(init=1)  # the lists can be read; driven in a sparse node


def _per_engine(register: Any) -> Sequence[Value]:
    """Return a register of each engine; the register file has a plain one for a single engine."""
    return [register] if isinstance(register, Signal) else register


class GlmNode(wiring.Component):
    """One worker of the training system, ready for a board.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        Access to the registers of ``node_registers(config)``.
    ``samples`` : Out, 2E × AXI4 read, lanes · banks / 2 bits
        Ports 2e and 2e + 1 read the low and the high half of engine e's sample words.
    ``labels`` : Out, AXI4 read, ``label_width`` bits
        Port that reads the labels of a micro-batch, in one beat or several.
    With ``sparse``, ``lists`` : Out, E × AXI4 read, 32 bits
        Ports that read the engines' lists.
    ``mac_tx`` : Out, packet stream of ``mac_width`` bits
        Frames to the MAC.
    ``mac_rx`` : In, packet stream of ``mac_width`` bits with ``error``
        Frames from the MAC.
    ``status`` : Out, ``NodeState``
        State for a board's LEDs.
    ``events`` : Out, ``NodeEvents``
        Pulses for measurement; a board leaves them open.

    Parameters
    ----------
    ``config`` : GlmConfig
        Sizes and options of the node.

    Latency
    -------
    From the last word of a micro-batch to its AGG on ``mac_tx``, and from the RESULT on ``mac_rx`` to the first
    gradient: see ARCHITECTURE, "The mini-batch, in cycles". One word a cycle for each engine.

    Source
    ------
    P4SGD, sections III and IV; docs/systems/glm.md, docs/reference/network.md.
    """

    def __init__(self, *, config: GlmConfig):
        self.config = config
        registers = node_registers(config)
        samples = AXI4ReadSignature(data_width=config.port_bits, address_width=config.address_width)
        labels = AXI4ReadSignature(data_width=config.label_width, address_width=config.address_width)
        lists = AXI4ReadSignature(data_width=ENTRY_BITS, address_width=config.address_width)
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=registers.address_bits)),
                "samples": Out(samples).array(config.sample_ports),
                "labels": Out(labels),
                "mac_tx": Out(packet_stream(config.mac_width)),
                "mac_rx": In(packet_stream(config.mac_width, error=True)),
                "status": Out(NodeState),
                "events": Out(NodeEvents),
            }
            | ({"lists": Out(lists).array(config.engines)} if config.sparse else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect registers, memory ports and transport to the worker."""
        m = Module()
        parts = self._parts()
        for part in fields(parts):
            m.submodules[part.name] = getattr(parts, part.name)
        connect_typed(m, flipped(self.axil), parts.registers.axil)
        connect_typed(m, flipped(self.mac_rx), parts.transport.rx)
        if self.config.ping:
            self._ping(m, parts)
        else:
            connect_typed(m, parts.transport.tx, flipped(self.mac_tx))
        connect_typed(m, parts.worker.pa, parts.transport.pa)
        self._full_activations(m, parts)
        self._settings(m, parts)
        readers = [*self._read_samples(m, parts), self._read_labels(m, parts)]
        if self.config.sparse:
            readers += self._read_lists(m, parts)
        self._control(m, parts, readers)
        self._model(m, parts)
        self._status(m, parts)
        self._counters(m, parts)
        self._events(m, parts)
        return m

    def _parts(self) -> _Parts:
        config = self.config
        size = {"lanes": config.lanes, "depth": config.depth}
        return _Parts(
            registers=RegisterFile(registers=node_registers(config), counters_in_memory=config.compact),
            control=NodeControl(),
            check=RunCheck(
                depth=config.depth,
                fifo_depth=config.sample_fifo,
                slots=config.slots,
                max_mini_batch=max_mini_batch(config),
                label_beats=config.banks // config.loss_lanes,
                protocol=config.protocol,
                vanilla=config.vanilla,
                lists=config.engines if config.sparse else 0,
            ),
            addresses=AddressCheck(
                sample_ports=config.sample_ports,
                sample_bytes=config.port_bits // 8,
                label_bytes=config.label_width // 8,
                address_width=config.address_width,
                own_lengths=config.sparse,
            ),
            worker=make_worker(config),
            transport=AggTransport(
                mac_width=config.mac_width,
                encap=config.encap,
                values=config.values,
                slots=config.slots,
                protocol=config.protocol,
                block_ram=config.block_ram_fas,
            ),
            window=ModelWindow(engines=config.engines, **size),
        )

    def _ping(self, m: Module, parts: _Parts) -> None:
        """Add a ping responder that sees the frames of the transport, and merge the frames of both."""
        width, rx, transport = self.config.mac_width, self.mac_rx, parts.transport
        m.submodules.responder = responder = PingResponder(width=width)
        m.submodules.merger = merger = FrameMerger(width=width)
        m.d.comb += [
            responder.i.valid.eq(rx.valid & rx.ready),
            responder.i.p.eq(rx.p),
            responder.own_mac.eq(transport.job.own_mac),
            responder.own_ip.eq(transport.job.own_ip),
        ]
        connect_typed(m, transport.tx, merger.i[0])
        connect_typed(m, responder.o, merger.i[1])
        connect_typed(m, merger.o, flipped(self.mac_tx))

    def _full_activations(self, m: Module, parts: _Parts) -> None:
        """Connect FAs from transport to worker without a cycle of latency, with ``ready`` registered."""
        source = parts.transport.fa
        if parts.worker.registers_fa_ready:
            connect_typed(m, source, parts.worker.fa)
            return
        skid = SkidBuffer(shape=source.payload.shape())
        m.submodules.full_activations = ResetInserter(parts.control.forget)(skid)
        connect_typed(m, source, skid.i)
        connect_typed(m, skid.o, parts.worker.fa)

    def _settings(self, m: Module, parts: _Parts) -> None:
        """Connect the registers' values to the parts that use them."""
        registers, worker, job = parts.registers, parts.worker, parts.transport.job
        # Registers and struct fields pair by name. Exceptions: ``serial`` and ``decay``, which depend on the
        # configuration; ``enable``, which ``NodeControl`` drives; the names in ``_JOB_FIELDS``.
        for name in EngineShape.as_shape().members:
            m.d.comb += worker.shape[name].eq(getattr(registers, name))
        for name in [name for name in Training.as_shape().members if name not in ("decay", "serial")]:
            m.d.comb += Value.cast(worker.training[name]).eq(getattr(registers, name))
        if self.config.vanilla:
            m.d.comb += [
                worker.training.serial.eq(registers.serial),
                worker.came.eq(parts.transport.counters.results),
            ]
        if self.config.l2:
            for name in NodeDecay.as_shape().members:
                m.d.comb += worker.training.decay[name].eq(getattr(registers, name))
        for name in [name for name in JobConfig.as_shape().members if name != "enable"]:
            m.d.comb += job[name].eq(getattr(registers, _JOB_FIELDS.get(name, name)))
        m.d.comb += [
            job.enable.eq(parts.control.enable),
            parts.check.shape.eq(worker.shape),
            parts.check.training.eq(worker.training),
            parts.check.job.eq(job),
            parts.addresses.labels.eq(registers.label_address),
            parts.addresses.label_words.eq(parts.check.label_words),
        ]
        for address, register in zip(parts.addresses.samples, registers.sample_address, strict=True):
            m.d.comb += address.eq(register)
        if self.config.sparse:
            for port, words in enumerate(parts.addresses.words):
                m.d.comb += words.eq(_per_engine(registers.sample_words)[port // 2])
            for entries, register in zip(parts.check.entries, _per_engine(registers.list_entries), strict=True):
                m.d.comb += entries.eq(register)
        else:
            m.d.comb += parts.addresses.words.eq(parts.check.words)

    @property
    def port_use(self) -> dict[str, PortUse]:
        """Use of the AXI4 ports, by the name of the port or of an array of ports."""
        widths = {"samples": self.config.port_bits, "labels": len(self.labels.rdata)}
        lists = {"lists": ENTRY_BITS} if self.config.sparse else {}
        return {name: self._port_use(width) for name, width in (widths | lists).items()}

    def _port_use(self, width: int) -> PortUse:
        read_ahead = self.config.read_ahead
        burst = min(BURST, page_burst(width), read_ahead // 4)
        return PortUse(burst=burst, reads=min(OUTSTANDING, 2 * read_ahead // burst))

    def _reader(self, m: Module, parts: _Parts, name: str, width: int) -> Any:
        """Add a memory reader that stops when the run is aborted; the caller sets its address and length."""
        read_ahead, use = self.config.read_ahead, self._port_use(width)
        m.submodules[name] = reader = shared(
            AxiReader(
                data_width=width,
                address_width=self.config.address_width,
                burst=use.burst,
                outstanding=use.reads,
                fifo_depth=read_ahead,
            )
        )
        # A reader is idle between runs, so it takes a command in the cycle in which the command is offered.
        m.d.comb += [reader.command.valid.eq(parts.control.begin), reader.stop.eq(parts.control.abort)]
        return reader

    def _read_samples(self, m: Module, parts: _Parts) -> list[Any]:
        """Add two readers per engine, for the halves of each word; a register isolates forward's stalls.

        After an abort the two readers of a pair may stop at different words. A word without its partner is then
        dropped here; complete pairs go to the worker, which drops them.
        """
        registers, discard = parts.registers, parts.control.discard
        readers = []
        for port, axi in enumerate(self.samples):
            reader = self._reader(m, parts, f"samples_{port}", self.config.port_bits)
            connect_typed(m, reader.axi, flipped(axi))
            m.d.comb += [
                reader.command.payload.address.eq(registers.sample_address[port]),
                reader.command.payload.beats.eq(self._epoch_words(parts, port // 2)),
                reader.command.payload.repeats.eq(registers.epochs),
            ]
            readers.append(reader)
        for engine, (low, high) in enumerate(zip(readers[::2], readers[1::2], strict=True)):
            word_register = RegisterSlice(shape=self.config.word_bits)
            m.submodules[f"word_register_{engine}"] = word_register
            connect_typed(m, word_register.o, parts.worker.samples[engine])
            m.d.comb += [
                word_register.i.payload.eq(Cat(low.o.payload, high.o.payload)),
                word_register.i.valid.eq(low.o.valid & high.o.valid),
                low.o.ready.eq(Mux(high.o.valid, word_register.i.ready, discard)),
                high.o.ready.eq(Mux(low.o.valid, word_register.i.ready, discard)),
            ]
        return readers

    def _epoch_words(self, parts: _Parts, engine: int) -> Value:
        """Return the number of an engine's sample words in an epoch."""
        if not self.config.sparse:
            return cast(Value, parts.check.words)
        return _per_engine(parts.registers.sample_words)[engine]

    def _read_lists(self, m: Module, parts: _Parts) -> list[Any]:
        """Add the readers of the lists, and the check of their addresses."""
        registers, config = parts.registers, self.config
        m.submodules.list_addresses = check = AddressCheck(
            sample_ports=config.engines,
            sample_bytes=ENTRY_BITS // 8,
            label_bytes=ENTRY_BITS // 8,
            address_width=config.address_width,
            own_lengths=True,
        )
        m.d.comb += [check.label_words.eq(1), parts.lists_ok.eq(check.ok)]
        readers = []
        for engine, axi in enumerate(self.lists):
            reader = self._reader(m, parts, f"list_{engine}", ENTRY_BITS)
            entry_register = RegisterSlice(shape=Entry)
            m.submodules[f"entry_register_{engine}"] = entry_register
            connect_typed(m, reader.axi, flipped(axi))
            m.d.comb += [
                reader.command.payload.address.eq(_per_engine(registers.list_address)[engine]),
                reader.command.payload.beats.eq(_per_engine(registers.list_entries)[engine]),
                reader.command.payload.repeats.eq(registers.epochs),
                entry_register.i.payload.eq(reader.o.payload),
                entry_register.i.valid.eq(reader.o.valid),
                reader.o.ready.eq(entry_register.i.ready),
                check.samples[engine].eq(_per_engine(registers.list_address)[engine]),
                check.words[engine].eq(_per_engine(registers.list_entries)[engine]),
            ]
            connect_typed(m, entry_register.o, parts.worker.entries[engine])
            readers.append(reader)
        return readers

    def _read_labels(self, m: Module, parts: _Parts) -> Any:
        """Add the label reader; a register decouples it from the loss unit's stalls."""
        registers, labels = parts.registers, parts.worker.labels
        reader = self._reader(m, parts, "labels", len(self.labels.rdata))
        label_register = RegisterSlice(shape=len(self.labels.rdata))
        m.submodules.label_register = label_register
        connect_typed(m, reader.axi, flipped(self.labels))
        connect_typed(m, reader.o, label_register.i)
        m.d.comb += [
            reader.command.payload.address.eq(registers.label_address),
            reader.command.payload.beats.eq(parts.check.label_words),
            reader.command.payload.repeats.eq(registers.epochs),
            labels.payload.as_value().eq(label_register.o.payload),
            labels.valid.eq(label_register.o.valid),
            label_register.o.ready.eq(labels.ready),
        ]
        return reader

    def _control(self, m: Module, parts: _Parts, readers: list[Any]) -> None:
        """Connect start, end and failure; the readers' states are combined in a register."""
        registers, control, worker, transport = parts.registers, parts.control, parts.worker, parts.transport
        reading = Signal()
        bus_error = Signal()
        m.d.sync += [
            reading.eq(Cat(reader.busy for reader in readers).any()),
            bus_error.eq(Cat(reader.error for reader in readers).any()),
        ]
        m.d.comb += [
            control.start.eq(registers.start),
            control.clear.eq(registers.clear_model),
            control.reset.eq(registers.reset_transport),
            control.refusal.eq(self._refusal(parts)),
            control.transport.eq(transport.status),
            control.bus_error.eq(bus_error),
            control.list_error.eq(worker.fault if self.config.sparse else 0),
            control.moving.eq(reading | ~worker.events.backward_idle),
            control.occupied.eq(worker.busy),
            control.training.eq(worker.running),
            worker.start.eq(control.begin),
            worker.abort.eq(control.abort),
            worker.flush.eq(control.flush),
            worker.clear.eq(control.clear_model),
            transport.reset.eq(control.forget),
        ]

    def _refusal(self, parts: _Parts) -> Value:
        """Return the reason why the node cannot do the run that its registers describe, or NONE."""
        addresses = Mux(parts.addresses.ok & parts.lists_ok, Failure.NONE, Failure.ADDRESS)
        return Mux(parts.check.ok, addresses, Failure.SHAPE)

    def _model(self, m: Module, parts: _Parts) -> None:
        """Connect the host's window to the weights, enabled while nothing else uses them."""
        window, worker = parts.window, parts.worker
        connect_typed(m, parts.registers.model_address, window.address)
        connect_typed(m, parts.registers.model_data, window.weight)
        connect_typed(m, window.host, worker.host)
        m.d.sync += window.enable.eq(~parts.control.busy & ~worker.busy)
        m.d.comb += worker.engine.eq(window.engine)

    def _status(self, m: Module, parts: _Parts) -> None:
        """Drive the registers with the node's constants and state."""
        registers, control = parts.registers, parts.control
        drive_constants(m, registers, node_constants(self.config))
        m.d.sync += registers.busy.eq(control.busy | parts.worker.busy)
        m.d.comb += [
            registers.idle.eq(parts.transport.status.idle | parts.transport.status.failed),
            registers.failed.eq(control.failed),
            self.status.running.eq(registers.busy),
            self.status.failed.eq(control.failed),
            registers.cause.eq(control.cause),
        ]
        m.d.comb += [getattr(registers, name).eq(parts.transport.status[name]) for name in ROUND_TRIPS]

    def _counters(self, m: Module, parts: _Parts) -> None:
        """Connect every counter to its source."""
        counts, pulses = parts.worker.counts, parts.transport.counters
        sources = {"cycles": parts.worker.running, "micro_batches": parts.transport.events.fa}
        sources |= {f"{'stall_' * (name in STALLS)}{name}": counts[name] for name in counts.shape().members}
        sources |= {name: pulses[name] for name in TransportCounters.as_shape().members if name != "faults"}
        sources |= {FAULT_COUNTERS[name]: pulses.faults[name] for name in FrameFaults.as_shape().members}
        drive_counters(m, parts.registers, sources)

    def _events(self, m: Module, parts: _Parts) -> None:
        transport = parts.transport
        m.d.comb += [
            getattr(self.events, name).eq(getattr(parts.worker.events, name))
            for name in ("forward_first", "forward_last", "backward_first", "backward_last")
        ]
        m.d.comb += [
            self.events.pa.eq(transport.pa.valid & transport.pa.ready),
            self.events.agg.eq(transport.events.agg),
            self.events.fa.eq(transport.events.fa),
        ]
