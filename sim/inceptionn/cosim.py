# amaranth: UnusedElaboratable=no
"""Hosts that exchange gradients over simulated INCEPTIONN NICs in RTL, at one switch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ
from fanin.codec.facts import Inceptionn
from fanin.hdl.codec.nic.nic import InceptionnNic
from fanin.inceptionn.driver import InceptionnDriver
from fanin.inceptionn.facts import MAX_WORKERS, MIN_WORKERS, Leg
from fanin.job import worker_endpoint
from fanin.link import LinkConfig
from fanin.sim.cosim.cluster import Cluster, Settings, check_identities
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, RunResult
from fanin.sim.cosim.simulator import Group
from fanin.sim.cosim.view import FrameFormat
from fanin.sim.cosim.waves import Waveform
from fanin.sim.inceptionn.hosts import ExchangeHosts, ExchangeResult, MakeHosts, Plan
from fanin.sim.inceptionn.meter import LegTraffic, Meter, legs_of
from fanin.wire.ethernet import ETHERNET, IPV4, TCP
from fanin.wire.fields import byte_length

Float32 = npt.NDArray[np.float32]

GBPS = 10.0  # rate of the links: the paper's Ethernet
MAX_NODES = MAX_WORKERS + MAX_WORKERS // MIN_WORKERS + 1  # with an aggregator per group, and one above
_FRAMES = FrameFormat(TCP, byte_length(ETHERNET) + byte_length(IPV4), ("sequence", "acknowledgement", "flags"))
QUIET_CYCLES = 300  # above the time that a frame of any length takes through a NIC


@dataclass
class ExchangeRun:
    """Result of an exchange: its sum, times, and the traffic of each leg."""

    outcome: ExchangeResult
    legs: dict[Leg, LegTraffic] = field(default_factory=dict)
    raw: RunResult = field(default_factory=RunResult)

    @property
    def seconds(self) -> float:
        """Seconds from the start, when all have their gradients, until the last node has the sum or weights."""
        return max(self.outcome.sum_times)


class InceptionnCosim:
    """``nodes`` NICs at a forwarding switch, built once; each run starts from reset.

    Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(
        self,
        *,
        nodes: int,
        clock_mhz: float = CLOCK_MHZ,
        wave: Waveform | None = None,
        quiet: bool = False,
    ):
        if not 2 <= nodes <= MAX_NODES:
            raise InputError(f"nodes must be 2 to {MAX_NODES}, not {nodes}")
        self.nodes, self.driver = nodes, InceptionnDriver()
        self._cluster = Cluster(
            lambda: [Group(InceptionnNic(), nodes, frames=_FRAMES)], clock_mhz=clock_mhz, wave=wave, quiet=quiet
        )

    def exchange(
        self, plan: Plan, gradients: Sequence[Float32], *, seed: int = 0, **settings: Unpack[Settings]
    ) -> ExchangeRun:
        """Carry out one exchange, on as many of the nodes as it has; ``settings`` are those of ``Cluster.run``.

        Raises ValueError for gradients of different lengths, or more nodes than were built. Raises
        SimulationFailed if the run fails, a sum differs from the golden model's, or a node does not answer.
        """
        sizes = {np.size(gradient) for gradient in gradients}
        if len(gradients) != plan.topology.workers or len(sizes) != 1 or sizes == {0}:
            raise ValueError(
                f"gradients must be of one length, at least 1, for {plan.topology.workers} workers, not of "
                f"{sorted(sizes)} for {len(gradients)}"
            )
        hosts = functools.partial(ExchangeHosts, plan=plan, gradients=gradients)
        raw = self.run(plan, hosts, seed=seed, **settings)
        return ExchangeRun(raw.hosts, legs_of(raw.switch), raw)

    def run(self, plan: Plan, hosts: MakeHosts, *, seed: int = 0, **settings: Unpack[Settings]) -> RunResult:
        """Configure the NICs, then let ``hosts`` drive. Raises as ``exchange``."""
        if plan.topology.nodes > self.nodes:
            raise ValueError(f"nodes must be at most {self.nodes}, as built, not {plan.topology.nodes}")
        settings.setdefault("link", LinkConfig(gbps=GBPS))
        raw = self._cluster.run(
            memories=[],
            phases=[Phase("configure", [configuration(self.driver, plan.codec)] * self.nodes)],
            longest_wait=0,
            switch=functools.partial(Meter.of, [worker_endpoint(node).mac for node in range(self.nodes)]),
            hosts=hosts,
            quiet_cycles=QUIET_CYCLES,
            seed=seed,
            **settings,
        )
        check_identities(self.driver, raw.phases[0].reads)
        return raw


def configuration(driver: InceptionnDriver, codec: Inceptionn | None) -> HostProgram:
    """Return a host's first program: it reads the NIC's identity, and sets its codec."""
    program = HostProgram().extend(driver.identify().operations)
    return program.extend(driver.configure(codec).operations)
