"""Cluster node: a device's layers, memory port and registers, ready for a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn.facts import Consumer, Network
from fanin.cnn.flow.link import Edge
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.port import BEAT_BITS, BURST, WRITE_DEPTH
from fanin.cnn.memory import ADDRESS_BITS, BEAT_BYTES, MemoryMap, image_stages, saving_stages, spilled_stages
from fanin.cnn.watchdog import MAX_TIMEOUT, watchdog
from fanin.hdl.bus.axi4 import OUTSTANDING, AXI4LiteSignature, memory_signature
from fanin.hdl.bus.common_registers import drive_constants, drive_counters
from fanin.hdl.bus.port_use import PortUse
from fanin.hdl.bus.register_map import WORD_BITS, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.layers.components import ENDS, component_of
from fanin.hdl.layers.edge import EdgeLink
from fanin.hdl.layers.fork import Fork
from fanin.hdl.layers.high_water import HighWater
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.network_port import EndShape, NetworkEnd, NetworkPort, drive_network
from fanin.hdl.layers.node_control import JobControl
from fanin.hdl.layers.progress import Progress
from fanin.hdl.layers.registers import (
    Direction,
    Fifo,
    StageFifo,
    StageStream,
    StreamWord,
    cluster_registers,
    network_constants,
    network_ends,
    stage_fifos,
    stage_streams,
)
from fanin.hdl.layers.stage_ports import StagePorts
from fanin.hdl.layers.store import Store, streams
from fanin.hdl.layers.watch import Watch
from fanin.hdl.layers.word_select import WordSelect
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.connection import MAC_WIDTH
from fanin.wire.ethernet import Encap


class ClusterNode(wiring.Component):
    """Device of a cluster, ready for a board: trains a network on images in memory.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        Registers of ``cluster_registers()``.
    ``memory`` : Out, AXI4, 512 bits
        Memory with parameters, images, labels, results and saved maps.
    ``mac_tx``, ``mac_rx`` : Out, In, packet streams of 512 bits, ``mac_rx`` with ``error``
        Frames to and from the MAC; present if the network has ends of connections.

    Parameters
    ----------
    ``network`` : Network
        A whole network, whose output is that of its loss, or the network of a ``fanin.cnn.parts.Part``.
    ``rings`` : frames kept for each stage that saves, by the stage's index
        Default: those of ``fanin.cnn.flow.sizes.Flow``. Required for a part.
    ``skews``, ``gradient_skews`` : transfers that edges hold, forward and backward
        By consuming stage and its port. Default: those of ``fanin.cnn.flow.sizes.Flow``. Required for a part.
    ``encap``, ``published`` : encapsulation and mode of the connections, see Connection

    Latency
    -------
    See docs/systems/cluster.md, "The node".

    Source
    ------
    NADA, section II; docs/systems/cluster.md.
    """

    def __init__(
        self,
        *,
        network: Network,
        rings: Mapping[int, int] | None = None,
        skews: Mapping[Edge, int] | None = None,
        gradient_skews: Mapping[Edge, int] | None = None,
        encap: Encap = Encap.L2,
        published: bool = False,
    ):
        if network.at_host and network.stages[network.output].sources != (network.loss,):
            raise ValueError(f"the output of {network.name} must be that of its loss")
        self.network = network
        self.encap = encap
        self.published = published
        self.rings = Flow(network).rings if rings is None else rings
        self.skews = Flow(network).skews if skews is None else skews
        self.gradient_skews = Flow(network).gradient_skews if gradient_skews is None else gradient_skews
        self._memory_map = MemoryMap(network, frames=1, rings=self.rings)
        members: dict[str, Any] = {
            "axil": In(AXI4LiteSignature(address_width=self.register_map.address_bits)),
            "memory": Out(memory_signature(data_width=BEAT_BITS, address_width=ADDRESS_BITS)),
        }
        if network_ends(network):
            members["mac_tx"] = Out(packet_stream(MAC_WIDTH))
            members["mac_rx"] = In(packet_stream(MAC_WIDTH, error=True))
        super().__init__(members)

    @property
    def register_map(self) -> RegisterMap:
        """Registers of the node. With connections, the default timeout is the maximum: peers may be slow."""
        standalone = not network_ends(self.network)
        return cluster_registers(timeout=watchdog([self.network]) if standalone else MAX_TIMEOUT)

    @property
    def port_use(self) -> dict[str, PortUse]:
        """Use of the AXI4 ports, by name."""
        return {"memory": PortUse(burst=BURST, reads=OUTSTANDING, writes=OUTSTANDING)}

    @property
    def fifos(self) -> dict[StageFifo, int]:
        """Capacity of each watched FIFO, in the order of their numbers."""
        sizes: dict[Fifo, Mapping[Any, int]] = {Fifo.FORWARD: self.skews, Fifo.BACKWARD: self.gradient_skews}
        capacities = {}
        for fifo in stage_fifos(self.network):
            if fifo.kind in sizes:
                capacities[fifo] = sizes[fifo.kind].get((fifo.stage, fifo.port), 0)
            else:
                capacities[fifo] = WRITE_DEPTH if fifo.kind is Fifo.SAVE else self.rings[fifo.stage]
        return capacities

    def elaborate(self, platform: Any) -> Module:
        """Connect the layers to the store, the network port and the registers."""
        m = Module()
        m.submodules.registers = registers = RegisterFile(registers=self.register_map)
        stateful = bool(self._memory_map.store.sections)
        m.submodules.control = control = JobControl(stateful=stateful)
        store = Store(config=self._memory_map.store)
        m.submodules.store = ResetInserter(control.clear)(store)
        connect_typed(m, flipped(self.axil), registers.axil)
        connect_typed(m, store.memory, flipped(self.memory))
        layers = self._layers(m, control, store)
        ends = self._network(m, registers, control)
        ports = StagePorts(self.network, layers | ends, store)
        levels: dict[StageFifo, Any] = {}
        for index in range(len(self.network.stages)):
            self._edges(m, index, ports, levels, control.clear)
        for ring, index in enumerate(saving_stages(self.network)):
            levels[StageFifo(Fifo.RING, index)] = store.levels[f"ring{ring}"]
            levels[StageFifo(Fifo.SAVE, index)] = store.levels[f"save{ring}"]
        self._settings(m, registers, control, store)
        self._progress(m, registers, control, ports)
        watches = self._watches(m, registers, control, ports)
        self._fifos(m, registers, control, levels)
        learning = [layer.done for i, layer in layers.items() if self.network.stages[i].layer.parameters]
        ends_done = [self._end_done(index, watches, control) for index in ends]
        m.d.sync += control.done.eq(Cat(store.done, *learning, *ends_done).all())
        return m

    def _layers(self, m: Module, control: JobControl, store: Store) -> dict[int, Any]:
        """Build the components of the layers, connected to store and job. Return them by stage index."""
        layers: dict[int, Any] = {}
        for index, stage in enumerate(self.network.stages):
            if not isinstance(stage.layer, ENDS):
                layers[index] = layer = component_of(stage)
                m.submodules[f"stage{index}"] = ResetInserter(control.clear)(layer)
                m.d.comb += layer.control.eq(control.control)
        for ring, index in enumerate(saving_stages(self.network)):
            connect_typed(m, layers[index].save, streams(store.save)[ring])
            connect_typed(m, streams(store.replay)[ring], layers[index].replay)
        for number, index in enumerate(spilled_stages(self.network)):
            connect_typed(m, layers[index].memory, streams(store.spilled)[number])
        for section, index in enumerate(image_stages(self.network)):
            connect_typed(m, store.load[section], layers[index].load)
            connect_typed(m, layers[index].dump, store.dump[section])
        return layers

    def _network(self, m: Module, registers: Any, control: JobControl) -> dict[int, NetworkEnd]:
        """Build the connections. Return their streams by the index of their stage."""
        stages, ends = self.network.stages, network_ends(self.network)
        if not ends:
            return {}
        shapes = tuple(EndShape.of(stages[index]) for index in ends)
        port = NetworkPort(ends=shapes, encap=self.encap, published=self.published)
        m.submodules.network = port
        connect_typed(m, port.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), port.mac_rx)
        drive_network(m, registers, port, clear=control.clear)
        m.d.comb += [
            port.watch.eq(control.running),
            port.control.eq(control.control),
            port.blocked.eq(control.resetting),
            control.link_failed.eq(port.failed | registers.reset_links),
            control.unready.eq(port.unready),
        ]
        return {index: NetworkEnd(stages[index], port.end(number)) for number, index in enumerate(ends)}

    def _end_done(self, end: int, watches: Mapping[StageStream, Watch], control: JobControl) -> Any:
        """Return whether all frames of the job have passed an end, and all their gradients have returned.

        Thus even a device without parameters keeps its job until the last frame.
        """
        stage, job = self.network.stages[end], control.control
        if isinstance(stage.layer, Egress):
            return Const(1)
        forward = watches[StageStream(end, Direction.FORWARD)].frames == job.frames
        (consumer,) = self.network.consumers[end]
        back = watches.get(StageStream(consumer.stage, Direction.BACKWARD, consumer.port))
        frames = forward if back is None else Mux(job.mode == Mode.TRAIN, back.frames == job.frames, forward)
        return frames | (job.mode == Mode.LOAD) | (job.mode == Mode.DUMP)

    def _edges(
        self, m: Module, index: int, ports: StagePorts, levels: dict[StageFifo, Any], clear: Any
    ) -> None:
        """Connect a stage to its consumers, both ways: an edge to each, after a fork if there are several.

        ``levels`` receives the fill levels of each edge. ``clear`` resets the fork and the edges.
        """
        consumers = self.network.consumers[index]
        if not consumers:
            return
        outputs, gradients = ports.outputs(index), ports.gradients(index)
        features, returns = [outputs], [gradients]
        if len(consumers) > 1 and gradients is None:
            copy = StreamFork(shape=outputs.payload.shape(), outputs=len(consumers))
            m.submodules[f"fork{index}"] = ResetInserter(clear)(copy)
            connect_typed(m, outputs, copy.i)
            features, returns = copy.o, [None] * len(consumers)
        elif len(consumers) > 1:
            lanes = self.network.stages[index].parallelism.po
            fork = Fork(lanes=lanes, consumers=len(consumers))
            m.submodules[f"fork{index}"] = ResetInserter(clear)(fork)
            connect_typed(m, outputs, fork.features)
            connect_typed(m, fork.input_gradients, gradients)
            features, returns = fork.outputs, fork.gradients
        for consumer, forward, back in zip(consumers, features, returns, strict=True):
            link = self._link(index, consumer, trains=back is not None)
            m.submodules[f"edge{consumer.stage}_{consumer.port}"] = ResetInserter(clear)(link)
            for kind, name in (Fifo.FORWARD, "waiting_level"), (Fifo.BACKWARD, "returning_level"):
                if hasattr(link, name):
                    levels[StageFifo(kind, consumer.stage, consumer.port)] = getattr(link, name)
            connect_typed(m, forward, link.features)
            connect_typed(m, link.outputs, ports.features(consumer))
            sent = ports.input_gradients(consumer)
            if back is not None:
                connect_typed(m, sent, link.gradients)
                connect_typed(m, link.input_gradients, back)
            elif sent is not None:  # no upstream layer has parameters
                m.d.comb += sent.ready.eq(1)

    def _link(self, source: int, consumer: Consumer, *, trains: bool) -> EdgeLink:
        stages, edge = self.network.stages, (consumer.stage, consumer.port)
        return EdgeLink(
            words=stages[source].layer.output.words,
            source=stages[source].parallelism.po,
            target=stages[consumer.stage].parallelism.pi,
            trains=trains,
            waiting=self.skews.get(edge, 0),
            returning=self.gradient_skews.get(edge, 0),
            resized=stages[consumer.stage].layer.takes_turns,
        )

    def _progress(self, m: Module, registers: Any, control: JobControl, ports: StagePorts) -> None:
        """Report whether any stream moves, and on a timeout the first stream that waits."""
        stream_ports = [ports.stream(stage_stream) for stage_stream in stage_streams(self.network)]
        m.submodules.progress = progress = Progress(count=len(stream_ports))
        m.d.comb += [
            progress.valid.eq(Cat(port.valid for port in stream_ports)),
            progress.ready.eq(Cat(port.ready for port in stream_ports)),
        ]
        m.d.sync += control.moves.eq(progress.moves | registers.read_beats | registers.written_beats)
        with m.If(control.control.start):
            m.d.sync += registers.waits.eq(0)
        with m.If(control.expired):
            m.d.sync += [registers.waits.eq(progress.waits), registers.waiting_stream.eq(progress.number)]

    def _watches(
        self, m: Module, registers: Any, control: JobControl, ports: StagePorts
    ) -> dict[StageStream, Watch]:
        """Put a watch on each stream that leaves a stage, together with the stream it is computed from."""
        watches: dict[StageStream, Watch] = {}
        words: list[Any] = []
        nonfinite = []
        cycle = Signal(WORD_BITS)
        m.d.sync += cycle.eq(cycle + 1)
        with m.If(control.control.start):
            m.d.sync += cycle.eq(0)
        for number, stage_stream in enumerate(stage_streams(self.network)):
            layer, port = self.network.stages[stage_stream.stage].layer, ports.stream(stage_stream)
            shape = (
                layer.output if stage_stream.direction is Direction.FORWARD else layer.inputs[stage_stream.port]
            )
            watches[stage_stream] = watch = Watch(
                lanes=len(port.payload), transfers=shape.words // len(port.payload)
            )
            m.submodules[f"watch{number}"] = watch
            m.d.comb += [
                watch.clear.eq(control.control.start),
                watch.enable.eq(control.running),
                Cat(watch.input_valid, watch.input_ready).eq(Cat(ports.source(stage_stream))),
                watch.output_valid.eq(port.valid),
                watch.output_ready.eq(port.ready),
                watch.payload.eq(port.payload),
                watch.now.eq(cycle),
                watch.timed_first.eq(registers.timed_first),
                watch.timed_last.eq(registers.timed_last),
            ]
            if layer.parameters and stage_stream.direction is Direction.FORWARD:
                m.d.comb += watch.updated.eq(ports.layers[stage_stream.stage].updated)
            for cycles in (watch.busy, watch.starved, watch.blocked):
                words += [cycles[:WORD_BITS], cycles[WORD_BITS:]]
            words += [watch.frames, Cat(watch.nonfinite_frame, Const(0, 7), watch.nonfinite)]
            words += [watch.first, watch.last, watch.update]
            words += [Const(0)] * ((1 << len(registers.word)) - len(StreamWord))
            nonfinite.append(watch.nonfinite)
        m.submodules.select = select = WordSelect(count=len(words))
        exists = Signal()  # the selected stream exists; the select drops a number's upper bits
        m.d.comb += [
            *(port.eq(word) for port, word in zip(select.words, words, strict=True)),
            select.index.eq(Cat(registers.word, registers.stream_number)),
            registers.stream_word.eq(Mux(exists, select.o, 0)),
        ]
        m.d.sync += exists.eq(registers.stream_number < len(watches))
        m.d.sync += registers.nonfinite.eq(Cat(nonfinite).any())
        return watches

    def _fifos(self, m: Module, registers: Any, control: JobControl, levels: Mapping[StageFifo, Any]) -> None:
        """Expose the highest level of each FIFO; 0 for a FIFO that was not built."""
        maxima: list[Any] = []
        for number, (fifo, depth) in enumerate(self.fifos.items()):
            if fifo in levels:
                m.submodules[f"fifo{number}"] = high = HighWater(depth=depth)
                m.d.comb += [high.level.eq(levels[fifo]), high.clear.eq(control.control.start)]
            maxima.append(high.most if fifo in levels else Const(0))
        m.submodules.select_fifo = select = WordSelect(count=max(len(maxima), 1))
        exists = Signal()  # the selected FIFO exists; the select drops a number's upper bits
        m.d.sync += exists.eq(registers.fifo < len(maxima))
        m.d.comb += [
            *(port.eq(level) for port, level in zip(select.words, maxima, strict=False)),
            select.index.eq(registers.fifo),
            registers.fifo_level.eq(Mux(exists, select.o, 0)),
        ]

    def _settings(self, m: Module, registers: Any, control: JobControl, store: Store) -> None:
        """Connect settings, commands, status and counters to the registers."""
        beat = BEAT_BYTES.bit_length() - 1

        def beats_of(name: str) -> Any:
            return getattr(registers, name)[beat:ADDRESS_BITS]

        places = ("parameters", "images", "labels", "results")
        m.d.sync += control.misplaced.eq(
            Cat(
                Cat(address[:beat], address[ADDRESS_BITS:]).any()
                for address in (getattr(registers, name) for name in places)
            ).any()
        )

        drive_constants(m, registers, network_constants(self.network))
        settings = ("frames", "batch", "eta", "last_eta", "momentum")
        m.d.comb += [
            control.settings.mode.eq(Mode(registers.mode)),
            *(control.settings[name].eq(getattr(registers, name)) for name in settings),
            control.start.eq(registers.start),
            control.reset.eq(registers.reset),
            control.quiet.eq(store.quiet),
            store.stop.eq(control.stop),
            control.timeout.eq(registers.timeout),
            control.memory_error.eq(store.error),
            store.control.eq(control.control),
            store.bases.parameters.eq(beats_of("parameters")),
            registers.running.eq(control.running),
            registers.resetting.eq(control.resetting),
            registers.refused.eq(control.refused),
            registers.failed.eq(control.failed),
            registers.cause.eq(control.cause),
        ]
        if self.network.at_host:
            m.d.comb += [
                store.bases.readers.eq(Cat(beats_of("images"), beats_of("labels"))),
                store.bases.writers.eq(beats_of("results")),
            ]
        drive_counters(
            m,
            registers,
            {
                "cycles": control.running,
                "read_beats": store.events.read,
                "written_beats": store.events.written,
            },
        )
