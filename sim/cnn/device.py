"""Nodes of a cluster as hosts see them: each node's part of the network, and its counters."""

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
    """Node of the cluster: its part of the network, its memory map, and the peers of its connections."""

    part: Part
    memory_map: MemoryMap
    peers: tuple[Peer, ...] = ()

    @property
    def states(self) -> list[int]:
        """Indices in the whole network of the stages that have state."""
        return [self.part.network_index[stage] for stage in state_stages(self.memory_map.network)]


def whole_fifo(part: Part, fifo: StageFifo) -> StageFifo:
    """Return a device's FIFO as numbered in the whole network; a cut edge's FIFO has its consumer's number."""
    if fifo.stage in part.ends:
        consumer = part.ends[fifo.stage].consumer
        return replace(fifo, stage=consumer.stage, port=consumer.port)
    return replace(fifo, stage=part.network_index[fifo.stage])


@dataclass
class Device:
    """Node with its number in the run and its driver."""

    index: int
    place: Place
    driver: CnnDriver = field(init=False)

    def __post_init__(self) -> None:
        self.driver = CnnDriver(self.place.memory_map)

    def streams(self, reads: Reads, offset: int) -> list[StreamCounters]:
        """Return the counters of the streams of stages, without ends of connections; times plus ``offset``."""
        found = self.driver.streams_of(reads.take(self.driver.streams()))
        whole = self.place.part.network_index
        return [
            _later(replace(one, stream=replace(one.stream, stage=whole[one.stream.stage])), offset)
            for one in found
            if one.stream.stage in whole
        ]

    def fifos(self, reads: Reads) -> dict[StageFifo, int]:
        """Return the highest level of each FIFO."""
        levels = self.driver.fifos_of(reads.take(self.driver.fifos()))
        return {whole_fifo(self.place.part, one): level for one, level in levels.items()}

    def counters(self, reads: Reads) -> DeviceCounters:
        """Skip the status, and return the counters of the node and its connections."""
        reads.take(self.driver.wait())
        counters = self.driver.counters_of(reads.take(self.driver.counters()))
        return DeviceCounters(counters, self.links(reads))

    def links(self, reads: Reads) -> dict[int, dict[str, int]]:
        """Return the counters of each connection by its number."""
        counters = self.driver.links_of(reads.take(self.driver.links()))
        return {peer.number: one for peer, one in zip(self.place.peers, counters, strict=True)}


def _later(one: StreamCounters, cycles: int) -> StreamCounters:
    """Return the counters with ``cycles`` added to all times except 0, which means none."""
    times = {name: getattr(one, name) for name in ("first", "last", "updated")}
    return replace(one, **{name: at and at + cycles for name, at in times.items()})


def load_states(places: Sequence[Place], memories: Iterable[HostMemory], states: Sequence[Words]) -> None:
    """Write the words of each stage that has state to its device's memory."""
    by_stage = dict(zip(sorted(i for place in places for i in place.states), states, strict=True))
    for place, memory in zip(places, memories, strict=True):
        memory.write_parameters([by_stage[stage] for stage in place.states])
