"""Access of live hosts to a cluster's nodes: part of the network, memory map, peers, and counters of a node."""

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
    """Place of a node in the cluster."""

    part: Part  #: part of the network
    memory_map: MemoryMap
    peers: tuple[Peer, ...] = ()  #: peer of each connection

    @property
    def states(self) -> list[int]:
        """Indices in the whole network of the stages that have state."""
        return [self.part.network_index[stage] for stage in state_stages(self.memory_map.network)]


def network_fifo(part: Part, fifo: StageFifo) -> StageFifo:
    """Return a device's FIFO as numbered in the whole network.

    An end's FIFO has its consumer's stage and port.
    """
    if fifo.stage in part.ends:
        consumer = part.ends[fifo.stage].consumer
        return replace(fifo, stage=consumer.stage, port=consumer.port)
    return replace(fifo, stage=part.network_index[fifo.stage])


@dataclass
class Device:
    """Node of a run, with its driver.

    Methods take words from ``reads`` in the order in which they were read.
    """

    index: int  #: number of the node in the run
    place: Place
    driver: CnnDriver = field(init=False)

    def __post_init__(self) -> None:
        self.driver = CnnDriver(self.place.memory_map)

    def streams(self, reads: Reads, offset: int) -> list[StreamCounters]:
        """Return the counters of the stages' streams, without ends of connections, as numbered in the network.

        ``offset``: cycles to add to times.
        """
        counters = self.driver.streams_of(reads.take(self.driver.streams()))
        network_index = self.place.part.network_index
        return [
            _delayed(
                replace(
                    stream_counters,
                    stream=replace(stream_counters.stream, stage=network_index[stream_counters.stream.stage]),
                ),
                offset,
            )
            for stream_counters in counters
            if stream_counters.stream.stage in network_index
        ]

    def fifos(self, reads: Reads) -> dict[StageFifo, int]:
        """Return the highest level of each FIFO."""
        levels = self.driver.fifos_of(reads.take(self.driver.fifos()))
        return {network_fifo(self.place.part, fifo): level for fifo, level in levels.items()}

    def counters(self, reads: Reads) -> DeviceCounters:
        """Skip the status, and return the counters of the node and its connections."""
        reads.take(self.driver.wait())
        counters = self.driver.counters_of(reads.take(self.driver.counters()))
        return DeviceCounters(counters, self.links(reads))

    def links(self, reads: Reads) -> dict[int, dict[str, int]]:
        """Return the counters of each connection by its number."""
        counters = self.driver.links_of(reads.take(self.driver.links()))
        return {
            peer.number: link_counters for peer, link_counters in zip(self.place.peers, counters, strict=True)
        }


def _delayed(counters: StreamCounters, cycles: int) -> StreamCounters:
    """Return the counters with ``cycles`` added to all times. A time of 0 means none, and stays 0."""
    times = {name: getattr(counters, name) for name in ("first", "last", "updated")}
    return replace(counters, **{name: cycle and cycle + cycles for name, cycle in times.items()})


def load_states(places: Sequence[Place], memories: Iterable[HostMemory], states: Sequence[Words]) -> None:
    """Write the state of each stage that has one to its device's memory. ``states``: in order of stages."""
    by_stage = dict(zip(sorted(i for place in places for i in place.states), states, strict=True))
    for place, memory in zip(places, memories, strict=True):
        memory.write_parameters([by_stage[stage] for stage in place.states])
