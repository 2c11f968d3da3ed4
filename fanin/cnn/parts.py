"""A network on several devices: which stages each one has, and what goes over the network between them."""

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
    """A cut edge: ``source``'s map goes to ``consumer`` on another device; if ``trains``, its gradient back.

    ``number`` is that of its frames, ``priority`` what a switch classes them by.
    """

    number: int
    source: int
    consumer: Consumer
    trains: bool
    priority: int = 0


@dataclass(frozen=True)
class Part:
    """What one device has of a network: ``network``, in which an end stands for each connection.

    ``whole``: of each of its stages, the index in the whole network; absent for the ends. ``ends``: the
    connection of each stage that is one. Sizes are those of ``ClusterNode``.
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
    """``network`` with the device of each of its stages; ``priorities`` of its connections, by edge.

    ``wiring``: the network between devices. Raises ValueError unless the host's ends, and what they feed, are
    on one device.
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
        """The device that the host's memory is at."""
        return self.devices[self.network.images]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Devices that have a stage at least, the host's first, the others in the order of their stages."""
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
        """When words leave the stages of the whole network."""
        return Flow(self.network, links=self.links)

    @cached_property
    def links(self) -> dict[Edge, Link]:
        """What carries the cut edges."""
        return self.wiring.links(self.network, self.devices)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """One for each of ``names``."""
        return tuple(_Cut(self, name).part for name in self.names)


@dataclass
class _Cut:
    """The stages of one device, in their order. A connection's end stands where the other device's stage would.

    So the consumers of a stage have the order that they have in the whole network, in which their gradients
    are added.
    """

    placement: Placement
    device: str
    stages: list[Stage] = field(default_factory=list)
    local: dict[int, int] = field(default_factory=dict)  #: index here, by that in the whole network
    edges: dict[Edge, Edge] = field(default_factory=dict)  #: by edges of the whole network
    ends: dict[int, Connection] = field(default_factory=dict)

    @cached_property
    def part(self) -> Part:
        """The part."""
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
        """The end at which a map arrives, as wide as its consumer takes it."""
        source, consumer = (self.placement.network.stages[i] for i in (one.source, one.consumer.stage))
        layer = Ingress(shape=source.layer.output, learns=one.trains)
        here = self._add(
            Stage(f"{source.name} to {consumer.name}", layer, Parallelism(po=consumer.parallelism.pi))
        )
        self.ends[here] = one
        return here

    def _egress(self, one: Connection) -> None:
        """The end at which a map leaves, as wide as its source gives it."""
        source, consumer = (self.placement.network.stages[i] for i in (one.source, one.consumer.stage))
        layer, lanes = Egress(inputs=(source.layer.output,), gradient=one.trains), source.parallelism.po
        width = Parallelism(pi=lanes, po=lanes)
        here = self._add(Stage(f"{source.name} to {consumer.name}", layer, width, (self.local[one.source],)))
        self.ends[here] = one
        self.edges[one.consumer.stage, one.consumer.port] = here, 0

    def _sizes(self, sizes: Mapping[Edge, int], *, forward: bool) -> dict[Edge, int]:
        """FIFOs of this device.

        On the way forward words wait in front of the consumer, on the way back in front of the source.
        """
        found = {}
        for (index, port), transfers in sizes.items():
            where = index if forward else self.placement.network.stages[index].sources[port]
            if self.placement.devices[where] == self.device:
                found[self.edges[index, port]] = transfers
        return found
