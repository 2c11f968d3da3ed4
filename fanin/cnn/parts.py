"""Placement of a network on several devices: stages of each device, and connections between devices."""

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
    """Cut edge between two devices.

    ``number``: number in its frames.
    ``source``: stage whose map is sent.
    ``consumer``: receiver of the map.
    ``trains``: true if the gradient is sent back.
    ``priority``: priority of its frames at a switch.
    """

    number: int
    source: int
    consumer: Consumer
    trains: bool
    priority: int = 0


@dataclass(frozen=True)
class Part:
    """Part of a network on one device.

    ``network``: the part's stages, with an end for each connection.
    ``whole``: index in the whole network of each stage except ends.
    ``ends``: connection of each end, by the end's index.
    ``rings``, ``skews``, ``gradient_skews``: sizes, as for ``ClusterNode``.
    """

    device: str
    network: Network
    whole: Mapping[int, int]
    ends: Mapping[int, Connection]
    rings: Mapping[int, int]
    skews: Mapping[Edge, int]
    gradient_skews: Mapping[Edge, int]


@dataclass(frozen=True)
class Placement:
    """Placement of a network on devices.

    ``devices``: device of each stage.
    ``priorities``: priority of a connection by edge; default 0.
    ``wiring``: the network between devices.

    Raises ValueError unless the stages at the host, and those that the images feed, are on one device.
    """

    network: Network
    devices: tuple[str, ...]
    priorities: Mapping[Edge, int] = field(default_factory=dict)
    wiring: Wiring = field(default_factory=Wiring)

    def __post_init__(self) -> None:
        network = self.network
        if len(self.devices) != len(network.stages):
            raise ValueError(f"there must be {len(network.stages)} devices, one for each stage")
        ends = {network.images, network.labels, network.loss, network.output}
        ends |= {consumer.stage for consumer in network.consumers[network.images]}
        for index in sorted(ends):
            if self.devices[index] != self.host:
                raise ValueError(
                    f"{network.stages[index].name} must be on {self.host}, the host's device, "
                    f"not on {self.devices[index]}"
                )

    @property
    def host(self) -> str:
        """Device of the host's memory."""
        return self.devices[self.network.images]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Devices with at least one stage: the host's first, the others in the order of their stages."""
        return tuple(dict.fromkeys((self.host, *self.devices)))

    @cached_property
    def connections(self) -> tuple[Connection, ...]:
        """All cut edges, in the order of the network's edges."""
        found: list[Connection] = []
        for index, stage in enumerate(self.network.stages):
            for port, source in enumerate(stage.sources):
                if self.devices[source] != self.devices[index]:
                    priority = self.priorities.get((index, port), 0)
                    consumer = Consumer(index, port)
                    found.append(Connection(len(found), source, consumer, stage.layer.gradient, priority))
        return tuple(found)

    @cached_property
    def flow(self) -> Flow:
        """Flow model of the whole network."""
        return Flow(self.network, links=self.links)

    @cached_property
    def links(self) -> dict[Edge, Link]:
        """Link of each cut edge."""
        return self.wiring.links(self.network, self.devices)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Part of each device, in the order of ``names``."""
        return tuple(_Cut(self, name).part for name in self.names)


@dataclass
class _Cut:
    """Builder of one device's part. A connection's end takes the position of the other device's stage.

    The consumers of a stage therefore keep the whole network's order, in which their gradients are added.
    """

    placement: Placement
    device: str
    stages: list[Stage] = field(default_factory=list)
    local: dict[int, int] = field(default_factory=dict)  #: index in the part, by index in the whole network
    edges: dict[Edge, Edge] = field(default_factory=dict)  #: edge in the part, by edge of the whole network
    ends: dict[int, Connection] = field(default_factory=dict)

    @cached_property
    def part(self) -> Part:
        """Part of the device."""
        connections = {one.consumer: one for one in self.placement.connections}
        for index, stage in enumerate(self.placement.network.stages):
            ports = [connections.get(Consumer(index, port)) for port in range(len(stage.sources))]
            if self.placement.devices[index] == self.device:
                self._stage(index, stage, [self._ingress(one) if one else None for one in ports])
            else:
                for one in ports:
                    if one and self.placement.devices[one.source] == self.device:
                        self._egress(one)
        name = self.placement.network.name
        return Part(
            device=self.device,
            network=Network(name, tuple(self.stages)),
            whole={here: index for index, here in self.local.items()},
            ends=self.ends,
            rings={self.local[i]: n for i, n in self.placement.flow.rings.items() if i in self.local},
            skews=self._sizes(self.placement.flow.skews, forward=True),
            gradient_skews=self._sizes(self.placement.flow.gradient_skews, forward=False),
        )

    def _add(self, stage: Stage) -> int:
        self.stages.append(stage)
        return len(self.stages) - 1

    def _stage(self, index: int, stage: Stage, arriving: list[int | None]) -> None:
        sources = tuple(
            self.local[source] if end is None else end
            for source, end in zip(stage.sources, arriving, strict=True)
        )
        here = self._add(Stage(stage.name, stage.layer, stage.parallelism, sources, stage.storage))
        self.local[index] = here
        for port in range(len(sources)):
            self.edges[index, port] = here, port

    def _ingress(self, one: Connection) -> int:
        """Add the end at which a map arrives, as wide as its consumer's input. Return its index."""
        source, consumer = (self.placement.network.stages[i] for i in (one.source, one.consumer.stage))
        layer = Ingress(shape=source.layer.output, learns=one.trains)
        here = self._add(
            Stage(f"{source.name} to {consumer.name}", layer, Parallelism(po=consumer.parallelism.pi))
        )
        self.ends[here] = one
        return here

    def _egress(self, one: Connection) -> None:
        """Add the end at which a map leaves, as wide as its source's output."""
        source, consumer = (self.placement.network.stages[i] for i in (one.source, one.consumer.stage))
        layer, lanes = Egress(inputs=(source.layer.output,), gradient=one.trains), source.parallelism.po
        width = Parallelism(pi=lanes, po=lanes)
        here = self._add(Stage(f"{source.name} to {consumer.name}", layer, width, (self.local[one.source],)))
        self.ends[here] = one
        self.edges[one.consumer.stage, one.consumer.port] = here, 0

    def _sizes(self, sizes: Mapping[Edge, int], *, forward: bool) -> dict[Edge, int]:
        """Return the sizes of this device's FIFOs.

        Forward words wait before the consumer, gradients before the source.
        """
        found = {}
        for (index, port), transfers in sizes.items():
            where = index if forward else self.placement.network.stages[index].sources[port]
            if self.placement.devices[where] == self.device:
                found[self.edges[index, port]] = transfers
        return found
