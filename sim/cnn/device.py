"""A cluster's nodes as hosts see them: what each has of the network, and what its counters read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fanin.cnn.driver import CnnDriver, HostMemory, Peer, StreamCounters
from fanin.cnn.memory import MemoryMap, state_stages
from fanin.cnn.parts import Part
from fanin.hdl.layers.registers import StageFifo
from fanin.sim.cnn.epochs import DeviceCounters, Words
from fanin.sim.cosim.cluster import Reads

HOST = 0  #: the node of the host's device, which has the images and the results


@dataclass(frozen=True)
class Place:
    """A node of the cluster: what it has of the network, what lies in its memory, who is at its connections."""

    part: Part
    memory_map: MemoryMap
    peers: tuple[Peer, ...] = ()

    @property
    def states(self) -> list[int]:
        """The stages that have state, as they are called in the whole network."""
        return [self.part.whole[stage] for stage in state_stages(self.memory_map.network)]


def whole_fifo(part: Part, fifo: StageFifo) -> StageFifo:
    """A FIFO of a device as it is called in the whole network: that of a cut edge after its consumer."""
    if fifo.stage in part.ends:
        consumer = part.ends[fifo.stage].consumer
        return replace(fifo, stage=consumer.stage, port=consumer.port)
    return replace(fifo, stage=part.whole[fifo.stage])


@dataclass
class Device:
    """A node, by its number in the run."""

    index: int
    place: Place
    driver: CnnDriver = field(init=False)

    def __post_init__(self) -> None:
        self.driver = CnnDriver(self.place.memory_map)

    def streams(self, reads: Reads, offset: int) -> list[StreamCounters]:
        """What its stages did; ends of connections are left out. ``offset`` is added to all times."""
        found = self.driver.streams_of(reads.take(self.driver.streams()))
        whole = self.place.part.whole
        return [
            _later(replace(one, stream=replace(one.stream, stage=whole[one.stream.stage])), offset)
            for one in found
            if one.stream.stage in whole
        ]

    def fifos(self, reads: Reads) -> dict[StageFifo, int]:
        """What its FIFOs held."""
        levels = self.driver.fifos_of(reads.take(self.driver.fifos()))
        return {whole_fifo(self.place.part, one): level for one, level in levels.items()}

    def counters(self, reads: Reads) -> DeviceCounters:
        """What it counted, behind its status."""
        reads.take(self.driver.wait())
        counters = self.driver.counters_of(reads.take(self.driver.counters()))
        return DeviceCounters(counters, self.links(reads))

    def links(self, reads: Reads) -> dict[int, dict[str, int]]:
        """What its connections did."""
        counters = self.driver.links_of(reads.take(self.driver.links()))
        return {peer.number: one for peer, one in zip(self.place.peers, counters, strict=True)}


def _later(one: StreamCounters, cycles: int) -> StreamCounters:
    """The same, with times that are so much later. A time of 0 says that there is none."""
    times = {name: getattr(one, name) for name in ("first", "last", "updated")}
    return replace(one, **{name: at and at + cycles for name, at in times.items()})


def load_states(places: Sequence[Place], memories: Iterable[HostMemory], states: Sequence[Words]) -> None:
    """Put the words of each stage that has state into its device's memory."""
    by_stage = dict(zip(sorted(i for place in places for i in place.states), states, strict=True))
    for place, memory in zip(places, memories, strict=True):
        memory.write_parameters([by_stage[stage] for stage in place.states])
