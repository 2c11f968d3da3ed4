# amaranth: UnusedElaboratable=no
"""Co-simulation of cluster nodes in training: Verilated nodes and memories, with jobs started by live hosts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import numpy.typing as npt

from fanin.base.limits import CLOCK_MHZ
from fanin.cnn.driver import HostMemory, Peer
from fanin.cnn.memory import MemoryMap
from fanin.cnn.parts import Part
from fanin.cnn.watchdog import watchdog
from fanin.hdl.layers.node import ClusterNode
from fanin.hdl.layers.registers import StageFifo
from fanin.job import worker_endpoint
from fanin.link import LinkConfig
from fanin.sim.cnn.device import Place, load_states, network_fifo
from fanin.sim.cnn.epochs import DeviceCounters, Epoch, EpochResult
from fanin.sim.cnn.hosts import ClusterHosts, Cut, HostSettings
from fanin.sim.cnn.timeout import link_timeout as timeout_of
from fanin.sim.cosim.arrays import OPERATORS, Arith
from fanin.sim.cosim.cluster import Cluster, Settings
from fanin.sim.cosim.run import MEMORY_LATENCY, QUIET_CYCLES, RunResult
from fanin.sim.cosim.simulator import Group, SimulationFailed
from fanin.sim.cosim.view import FrameFormat
from fanin.sim.cosim.waves import Waveform
from fanin.sim.network import SWITCH_NS
from fanin.wire.connection import CONNECTION_LINK
from fanin.wire.ethernet import Encap
from fanin.wire.link import LinkKind

Words = npt.NDArray[np.uint32]
_FIELDS = ("kind", "connection", "sequence", "frame", "words")  # fields of frames that waveforms show


@dataclass
class NodeRun:
    """Result of a run of :class:`ClusterCosim`."""

    epochs: list[EpochResult] = field(default_factory=list)
    raw: RunResult = field(default_factory=RunResult)  #: result of the co-simulation


class JobFailed(SimulationFailed):
    """Failure of a job on a node.

    - ``devices``: counters of each device in the job.
    - ``results``: number of the job's results in memory.
    - ``cycles``: cycles of the run.
    """

    def __init__(self, raw: RunResult):
        super().__init__(raw.hosts.failure, raw)
        self.devices: list[DeviceCounters] = raw.hosts.failed_counters
        self.results = len(raw.hosts.result_cycles)
        self.cycles = raw.cycles


class ClusterCosim:
    """Simulator of a cluster's nodes, built once; each ``run`` starts from reset.

    - ``parts``: part of the network on each device, the host's device first.
    - ``arith``: simulation of arrays of operators. With RTL, each operator is an instance of a separate model,
      since hundreds of operators in a node's model are too many for a compiler.
    - ``encap``: encapsulation of the connections' frames.
    - ``published``: true for the published link protocol, without retransmission.

    Raises InputError for a missing tool.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        arith: Arith = Arith.C,
        clock_mhz: float = CLOCK_MHZ,
        encap: Encap = Encap.L2,
        published: bool = False,
        wave: Waveform | None = None,
        quiet: bool = False,
    ):
        self.parts = parts
        self.nodes = {part.device: node_of(part, encap=encap, published=published) for part in parts}
        self._encap = encap
        separate = OPERATORS if arith is Arith.RTL else ()
        link_format = CONNECTION_LINK
        frames = FrameFormat(link_format.fields, link_format.header_at(encap), _FIELDS, {"kind": LinkKind})
        groups = [Group(node, arith=arith, separate=separate, frames=frames) for node in self.nodes.values()]
        self._cluster = Cluster(lambda: groups, clock_mhz=clock_mhz, wave=wave, quiet=quiet)

    @property
    def period_ps(self) -> int:
        """Clock period in ps."""
        return self._cluster.period_ps

    @property
    def fifos(self) -> dict[StageFifo, int]:
        """Capacity of each observed FIFO, numbered in the whole network."""
        return {
            network_fifo(part, fifo): size
            for part, node in zip(self.parts, self.nodes.values(), strict=True)
            for fifo, size in node.fifos.items()
        }

    def run(
        self,
        states: Sequence[Words],
        epochs: Sequence[Epoch],
        *,
        timeout: int | None = None,
        link_timeout: int | None = None,
        link_retries: int | None = None,
        cut: Cut | None = None,
        memory_latency: int = MEMORY_LATENCY,
        memory_gbps: float | None = None,
        seed: int = 0,
        **settings: Unpack[Settings],
    ) -> NodeRun:
        """Load the state of each stage that has one, then run the epochs.

        - ``timeout``: cycles without a transfer until a job fails; default: ``fanin.cnn.watchdog``.
        - ``link_timeout``: cycles until a connection retransmits; default: :meth:`link_timeout`.
        - ``link_retries``: retries of a connection; default: the node's own.
        - ``cut``: cut of the network.
        - ``memory_gbps``: limit of each memory's rate per direction, in Gbit/s; None for no limit.
        - ``seed``: seed of the network's faults.

        Progress counts epochs. Raises JobFailed if a node fails a job, SimulationFailed if the run fails.
        """
        if timeout is None:
            timeout = watchdog(part.network for part in self.parts)
        if link_timeout is None:
            link_timeout = self.link_timeout(settings.get("link"), settings.get("switch_ns", SWITCH_NS))
        frames = max(len(epoch.images) for epoch in epochs)
        places = [self._place(number, frames) for number in range(len(self.parts))]
        contents = [np.zeros(place.memory_map.end, np.uint8) for place in places]
        maps = (place.memory_map for place in places)
        load_states(places, map(HostMemory, maps, contents), states)
        hosts = HostSettings(timeout, link_timeout=link_timeout, link_retries=link_retries, cut=cut)
        raw = self._cluster.run(
            memories=[[content] for content in contents],
            phases=[],
            longest_wait=2 * timeout,
            hosts=functools.partial(ClusterHosts, places=places, epochs=epochs, settings=hosts),
            memory_latency=memory_latency,
            memory_gbps=memory_gbps,
            independent_hosts=True,
            quiet_cycles=max(QUIET_CYCLES, 2 * memory_latency),
            seed=seed,
            **settings,
        )
        if raw.hosts.failure:
            raise JobFailed(raw)
        return NodeRun(raw.hosts.epochs, raw)

    def link_timeout(self, link: LinkConfig | None = None, switch_ns: float = SWITCH_NS) -> int:
        """Return the cycles until a connection retransmits: longer than any answer takes over such links."""
        return timeout_of(
            self.parts,
            link=link or LinkConfig(),
            switch_ns=switch_ns,
            period_ps=self.period_ps,
            encap=self._encap,
        )

    def _place(self, number: int, frames: int) -> Place:
        part = self.parts[number]
        peer_devices = {
            connection.number: n
            for n, other in enumerate(self.parts)
            if n != number
            for connection in other.ends.values()
        }
        peers = (
            Peer(connection.number, worker_endpoint(peer_devices[connection.number]), connection.priority)
            for _, connection in sorted(part.ends.items())
        )
        memory_map = MemoryMap(part.network, frames=frames, rings=part.rings)
        return Place(part, memory_map, tuple(peers))


def node_of(part: Part, *, encap: Encap = Encap.L2, published: bool = False) -> ClusterNode:
    """Return the node of a device."""
    return ClusterNode(
        network=part.network,
        rings=part.rings,
        skews=part.skews,
        gradient_skews=part.gradient_skews,
        encap=encap,
        published=published,
    )
