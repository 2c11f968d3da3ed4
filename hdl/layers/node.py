"""The cluster node: a device's layers, its memory and its registers; ready for a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth import Array, Cat, Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn import Consumer, Network, Stage
from fanin.cnn_flow import Edge, Flow
from fanin.cnn_memory import ADDRESS_BITS, BEAT_BITS, BEAT_BYTES, MemoryMap, saving_stages, state_stages
from fanin.hdl.bus.axi4 import AXI4LiteSignature, memory_signature
from fanin.hdl.bus.common_registers import drive_constants, drive_counters
from fanin.hdl.bus.register_map import RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.layers.components import ENDS, component_of
from fanin.hdl.layers.edge import EdgeLink
from fanin.hdl.layers.fork import Fork
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.node_control import JobControl
from fanin.hdl.layers.progress import Progress
from fanin.hdl.layers.registers import STAGE_BITS, Way, cluster_registers, network_constants
from fanin.hdl.layers.store import Store, streams
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork


class ClusterNode(wiring.Component):
    """Train a network on images in memory: a device of a cluster, ready for a board.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        The registers of ``cluster_registers()``.
    ``memory`` : Out, AXI4, 512 bits

    Parameters
    ----------
    ``network`` : Network
        Its output is the loss's.
    ``rings`` : frames that are kept for each stage that saves, by its index
    ``skews``, ``gradient_skews`` : transfers that edges hold, on the way forward and back
        By the consuming stage and its port. All three are those of ``fanin.cnn_flow.Flow`` unless given.

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
    ):
        if network.stages[network.output].sources != (network.loss,):
            raise ValueError(f"the output of {network.name} must be that of its loss")
        flow = Flow(network)
        self.network = network
        self.rings = flow.rings if rings is None else rings
        self.skews = flow.skews if skews is None else skews
        self.gradient_skews = flow.gradient_skews if gradient_skews is None else gradient_skews
        self._memory_map = MemoryMap(network, frames=1, rings=self.rings)
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=self.register_map.address_bits)),
                "memory": Out(memory_signature(data_width=BEAT_BITS, address_width=ADDRESS_BITS)),
            }
        )

    @property
    def register_map(self) -> RegisterMap:
        """The node's registers."""
        return cluster_registers()

    def elaborate(self, platform: Any) -> Module:
        """Layers in the middle, memory on one side, registers on the other."""
        m = Module()
        m.submodules.registers = registers = RegisterFile(registers=self.register_map)
        m.submodules.control = control = JobControl()
        m.submodules.store = store = Store(config=self._memory_map.store)
        connect_typed(m, flipped(self.axil), registers.axil)
        connect_typed(m, store.memory, flipped(self.memory))
        layers = self._layers(m, control, store)
        self._edges(m, layers, store)
        self._settings(m, registers, control, store)
        self._progress(m, registers, control, self._taps(layers, store))
        return m

    def _layers(self, m: Module, control: JobControl, store: Store) -> dict[int, Any]:
        """The components by the index of their stage, with what they have of the store and of the job."""
        layers: dict[int, Any] = {}
        for index, stage in enumerate(self.network.stages):
            if not isinstance(stage.layer, ENDS):
                layers[index] = layer = component_of(stage)
                m.submodules[f"stage{index}"] = layer
                m.d.comb += layer.control.eq(control.control)
        for ring, index in enumerate(saving_stages(self.network)):
            connect_typed(m, layers[index].save, streams(store.save)[ring])
            connect_typed(m, streams(store.replay)[ring], layers[index].replay)
        for section, index in enumerate(state_stages(self.network)):
            connect_typed(m, store.load[section], layers[index].load)
            connect_typed(m, layers[index].dump, store.dump[section])
        ends = [layer.done for index, layer in layers.items() if self.network.stages[index].layer.parameters]
        m.d.sync += control.done.eq(Cat(store.done, *ends).all())
        return layers

    def _edges(self, m: Module, layers: dict[int, Any], store: Store) -> None:
        """From each stage to its consumers, and back."""
        network = self.network
        images, labels = streams(store.readers)
        for index, consumers in enumerate(network.consumers):
            stage = network.stages[index]
            layer = layers.get(index)
            outputs = layer.outputs if layer else {network.images: images, network.labels: labels}.get(index)
            back = layer.gradients if layer and "gradients" in layer.signature.members else None
            for consumer, (features, gradients) in zip(
                consumers, self._forked(m, index, outputs, back), strict=True
            ):
                self._edge(m, stage, consumer, features, gradients, layers, store)

    def _forked(self, m: Module, index: int, outputs: Any, back: Any) -> list[tuple[Any, Any]]:
        """A stage's streams for each of its consumers: features, and what takes gradients, if anything does."""
        count = len(self.network.consumers[index])
        if count < 2:
            return [(outputs, back)] * count
        lanes = self.network.stages[index].parallelism.po
        if back is None:
            m.submodules[f"fork{index}"] = copy = StreamFork(shape=outputs.payload.shape(), outputs=count)
            connect_typed(m, outputs, copy.i)
            return [(port, None) for port in copy.o]
        m.submodules[f"fork{index}"] = fork = Fork(lanes=lanes, consumers=count)
        connect_typed(m, outputs, fork.features)
        connect_typed(m, fork.input_gradients, back)
        return list(zip(fork.outputs, fork.gradients, strict=True))

    def _edge(
        self,
        m: Module,
        source: Stage,
        consumer: Consumer,
        features: Any,
        back: Any,
        layers: dict[int, Any],
        store: Store,
    ) -> None:
        """From a stage to one of its consumers."""
        target = self.network.stages[consumer.stage]
        layer = layers.get(consumer.stage)
        sink = layer.features[consumer.port] if layer else streams(store.writers)[0]
        returned = layer.input_gradients if layer and "input_gradients" in layer.signature.members else ()
        place = consumer.stage, consumer.port
        edge = EdgeLink(
            words=source.layer.output.words,
            source=source.parallelism.po,
            target=target.parallelism.pi,
            trains=back is not None,
            waiting=self.skews.get(place, 0),
            returning=self.gradient_skews.get(place, 0),
        )
        m.submodules[f"edge{consumer.stage}_{consumer.port}"] = edge
        connect_typed(m, features, edge.features)
        connect_typed(m, edge.outputs, sink)
        if back is not None:
            connect_typed(m, returned[consumer.port], edge.gradients)
            connect_typed(m, edge.input_gradients, back)
        elif consumer.port < len(returned):  # nobody learns from it
            m.d.comb += returned[consumer.port].ready.eq(1)

    def _taps(self, layers: dict[int, Any], store: Store) -> list[tuple[int, Way, Any]]:
        """Every stream that leaves a stage: of which stage, which way, and the stream."""
        readers = dict(zip((self.network.images, self.network.labels), streams(store.readers), strict=True))
        taps = [(index, Way.FORWARD, reader) for index, reader in readers.items()]
        for index, layer in layers.items():
            taps.append((index, Way.FORWARD, layer.outputs))
            taps += [(index, Way.BACKWARD, back) for back in getattr(layer, "input_gradients", ())]
        return sorted(taps, key=lambda tap: tap[:2])

    def _progress(
        self, m: Module, registers: Any, control: JobControl, taps: list[tuple[int, Way, Any]]
    ) -> None:
        """Whether anything moves, and who waits if nothing does."""
        m.submodules.progress = progress = Progress(count=len(taps))
        names = Array(Const(stage << 1 | way, STAGE_BITS + 1) for stage, way, _ in taps)
        m.d.comb += [
            progress.valid.eq(Cat(tap.valid for *_, tap in taps)),
            progress.ready.eq(Cat(tap.ready for *_, tap in taps)),
        ]
        m.d.sync += control.moves.eq(progress.moves | registers.read_beats | registers.written_beats)
        with m.If(control.expired):
            m.d.sync += [
                registers.waits.eq(progress.waits),
                Cat(registers.waits_way, registers.waits_stage).eq(names[progress.number]),
            ]

    def _settings(self, m: Module, registers: Any, control: JobControl, store: Store) -> None:
        """What the registers say, and what they show."""
        beat = BEAT_BYTES.bit_length() - 1

        def beats_of(name: str) -> Any:
            return getattr(registers, name)[beat:ADDRESS_BITS]

        drive_constants(m, registers, network_constants(self.network))
        settings = ("frames", "batch", "eta", "last_eta", "momentum")
        m.d.comb += [
            control.settings.mode.eq(Mode(registers.mode)),
            *(control.settings[name].eq(getattr(registers, name)) for name in settings),
            control.start.eq(registers.start),
            control.timeout.eq(registers.timeout),
            control.memory_error.eq(store.error),
            store.control.eq(control.control),
            store.bases.parameters.eq(beats_of("parameters")),
            store.bases.readers.eq(Cat(beats_of("images"), beats_of("labels"))),
            store.bases.writers.eq(beats_of("results")),
            registers.running.eq(control.running),
            registers.failed.eq(control.failed),
            registers.cause.eq(control.cause),
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
