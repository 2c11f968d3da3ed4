"""Network placed on several devices: stages of each device, and connections between devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fanin.cnn.facts import Consumer, Network, Stage
from fanin.cnn.flow.link import Edge, Link, Wiring
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.ingress import Ingress
from fanin.cnn.layers.layer import Parallelism


@dataclass(frozen=True)
class Connection:
    """Edge of a network between two devices."""

    number: int  #: number of the connection in its frames, from 0
    source: int  #: index of the stage whose map is sent
    consumer: Consumer  #: receiver of the map
    trains: bool  #: true if the map's gradient is sent back
    priority: int = 0  #: priority of its frames at a switch


@dataclass(frozen=True)
class Part:
    """Part of a network on one device.

    An *end* is a stage of kind ``ingress`` or ``egress``, at which a connection starts or ends. Indices of
    stages and edges are those of the part's own network.
    """

    device: str  #: name of the device
    network: Network  #: the part's stages, with an end for each connection
    network_index: Mapping[int, int]  #: index in the whole network, by stage, without ends
    ends: Mapping[int, Connection]  #: connection of each end, by stage
    rings: Mapping[int, int]  #: frames of each ring, by stage
    skews: Mapping[Edge, int]  #: transfers of each forward FIFO, by edge
    gradient_skews: Mapping[Edge, int]  #: transfers of each backward FIFO, by edge


@dataclass(frozen=True)
class PlacedNetwork:
    """Network placed on devices.

    The stages of images, labels, loss and output, and the consumers of the images, must be on one device, the
    host's. Raises ValueError otherwise.
    """

    network: Network
    devices: tuple[str, ...]  #: name of each stage's device
    #: priority of a connection, by edge; default 0
    priorities: Mapping[Edge, int] = field(default_factory=dict)
    wiring: Wiring = field(default_factory=Wiring)  #: network between devices

    def __post_init__(self) -> None:
        network = self.network
        if len(self.devices) != len(network.stages):
            raise ValueError(f"there must be {len(network.stages)} devices, one for each stage")
        host_stages = {network.images, network.labels, network.loss, network.output}
        host_stages |= {consumer.stage for consumer in network.consumers[network.images]}
        for index in sorted(host_stages):
            if self.devices[index] != self.host:
                raise ValueError(
                    f"{network.stages[index].name} must be on {self.host}, the host's device, "
                    f"not on {self.devices[index]}"
                )

    @property
    def host(self) -> str:
        """Device whose memory the host writes and reads."""
        return self.devices[self.network.images]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Devices with at least one stage: the host's device first, then in the order of stages."""
        return tuple(dict.fromkeys((self.host, *self.devices)))

    @cached_property
    def connections(self) -> tuple[Connection, ...]:
        """Connections of all edges between devices, in the order of the network's edges."""
        connections: list[Connection] = []
        for index, stage in enumerate(self.network.stages):
            for port, source in enumerate(stage.sources):
                if self.devices[source] != self.devices[index]:
                    priority = self.priorities.get((index, port), 0)
                    consumer = Consumer(index, port)
                    connections.append(
                        Connection(len(connections), source, consumer, stage.layer.gradient, priority)
                    )
        return tuple(connections)

    @cached_property
    def flow(self) -> Flow:
        """Flow model of the whole network."""
        return Flow(self.network, links=self.links)

    @cached_property
    def links(self) -> dict[Edge, Link]:
        """Link of each edge between devices."""
        return self.wiring.links(self.network, self.devices)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Part of each device, in the order of ``names``."""
        return tuple(_PartBuilder(self, name).part for name in self.names)


@dataclass
class _PartBuilder:
    """Builder of one device's part.

    The end of a connection takes the position of the other device's stage. The consumers of a stage therefore
    keep the whole network's order, in which their gradients are added.
    """

    placement: PlacedNetwork
    device: str
    stages: list[Stage] = field(default_factory=list)
    #: index in the part, by index in the whole network
    local_index: dict[int, int] = field(default_factory=dict)
    edges: dict[Edge, Edge] = field(default_factory=dict)  #: edge in the part, by edge of the whole network
    ends: dict[int, Connection] = field(default_factory=dict)

    @cached_property
    def part(self) -> Part:
        """Part of the device."""
        connections = {connection.consumer: connection for connection in self.placement.connections}
        for index, stage in enumerate(self.placement.network.stages):
            ports = [connections.get(Consumer(index, port)) for port in range(len(stage.sources))]
            if self.placement.devices[index] == self.device:
                self._stage(
                    index, stage, [self._ingress(connection) if connection else None for connection in ports]
                )
            else:
                for connection in ports:
                    if connection and self.placement.devices[connection.source] == self.device:
                        self._egress(connection)
        name = self.placement.network.name
        return Part(
            device=self.device,
            network=Network(name, tuple(self.stages)),
            network_index={local: index for index, local in self.local_index.items()},
            ends=self.ends,
            rings={
                self.local_index[i]: n for i, n in self.placement.flow.rings.items() if i in self.local_index
            },
            skews=self._sizes(self.placement.flow.skews, forward=True),
            gradient_skews=self._sizes(self.placement.flow.gradient_skews, forward=False),
        )

    def _add(self, stage: Stage) -> int:
        self.stages.append(stage)
        return len(self.stages) - 1

    def _stage(self, index: int, stage: Stage, ends: list[int | None]) -> None:
        """Add a stage of this device. ``ends``: index of each input's end; None for a source on this device."""
        sources = tuple(
            self.local_index[source] if end is None else end
            for source, end in zip(stage.sources, ends, strict=True)
        )
        local = self._add(Stage(stage.name, stage.layer, stage.parallelism, sources, stage.storage))
        self.local_index[index] = local
        for port in range(len(sources)):
            self.edges[index, port] = local, port

    def _ingress(self, connection: Connection) -> int:
        """Add the end at which a connection's map arrives, as wide as the consumer's input.

        Return its index.
        """
        source, consumer = (
            self.placement.network.stages[i] for i in (connection.source, connection.consumer.stage)
        )
        layer = Ingress(shape=source.layer.output, learns=connection.trains)
        index = self._add(
            Stage(f"{source.name} to {consumer.name}", layer, Parallelism(po=consumer.parallelism.pi))
        )
        self.ends[index] = connection
        return index

    def _egress(self, connection: Connection) -> None:
        """Add the end at which a connection's map leaves, as wide as the source's output."""
        source, consumer = (
            self.placement.network.stages[i] for i in (connection.source, connection.consumer.stage)
        )
        layer, lanes = Egress(inputs=(source.layer.output,), gradient=connection.trains), source.parallelism.po
        width = Parallelism(pi=lanes, po=lanes)
        index = self._add(
            Stage(f"{source.name} to {consumer.name}", layer, width, (self.local_index[connection.source],))
        )
        self.ends[index] = connection
        self.edges[connection.consumer.stage, connection.consumer.port] = index, 0

    def _sizes(self, sizes: Mapping[Edge, int], *, forward: bool) -> dict[Edge, int]:
        """Return the sizes of this device's FIFOs. ``sizes``: those of the whole network.

        The FIFO of an edge is on the receiving device: forward the consumer's, backward the source's.
        """
        local_sizes = {}
        for (index, port), transfers in sizes.items():
            stage = index if forward else self.placement.network.stages[index].sources[port]
            if self.placement.devices[stage] == self.device:
                local_sizes[self.edges[index, port]] = transfers
        return local_sizes
