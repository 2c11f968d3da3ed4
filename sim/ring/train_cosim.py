# amaranth: UnusedElaboratable=no
"""Training on simulated ring nodes: RTL in one top, with a live host per node."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.ring.node import RingNode
from fanin.job import worker_endpoint
from fanin.link import LinkConfig
from fanin.ring.driver import RingDriver, RingMember
from fanin.ring.facts import MAX_NODES, MIN_NODES, RingConfig
from fanin.ring.golden.random_bits import RandomBits
from fanin.ring.groups import Groups
from fanin.sim.cosim.cluster import Cluster, Settings, check_identities
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import QUIET_CYCLES, Phase, RunResult
from fanin.sim.cosim.run import Progress as RunProgress
from fanin.sim.cosim.simulator import Group
from fanin.sim.cosim.view import FrameFormat
from fanin.sim.cosim.waves import Waveform
from fanin.sim.learning.replica import Dataset, State
from fanin.sim.ring.group_hosts import GroupHosts
from fanin.sim.ring.hosts import Buffers, Hosts, HostsResult
from fanin.sim.ring.rounds import RETRIES, TIMEOUT, JobSettings
from fanin.sim.ring.schedule import MAX_OUTSTANDING, Learners
from fanin.sim.ring.training import Learning, Outcome, RingTraining
from fanin.wire.ethernet import Encap
from fanin.wire.link import LinkKind
from fanin.wire.ring import RING_LINK

JOB_ID = 1
_FIELDS = ("kind", "operation", "sequence", "count")
_FRAMES = FrameFormat(RING_LINK.fields, RING_LINK.header_at(Encap.L2), _FIELDS, {"kind": LinkKind})


class RingTrainingCosim:
    """N ring nodes of ``config`` at a forwarding switch, built once; each ``run`` starts from reset.

    Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(
        self,
        config: RingConfig,
        *,
        nodes: int,
        clock_mhz: float = CLOCK_MHZ,
        wave: Waveform | None = None,
        quiet: bool = False,
    ):
        if nodes not in range(MIN_NODES, MAX_NODES + 1):
            raise InputError(f"nodes must be {MIN_NODES} to {MAX_NODES}, not {nodes}")
        self.config, self.nodes = config, nodes
        self.driver = RingDriver(config)
        self._cluster = Cluster(
            lambda: [Group(RingNode(config=config, queue=MAX_OUTSTANDING), nodes, frames=_FRAMES)],
            clock_mhz=clock_mhz,
            wave=wave,
            quiet=quiet,
        )

    def run(
        self,
        learners: Callable[[], Learners],
        counts: list[int],
        *,
        bits: RandomBits | None = None,
        groups: Groups | None = None,
        jobs: JobSettings | None = None,
        stops: dict[int, float] | None = None,
        timeout: int = TIMEOUT,
        retries: int = RETRIES,
        seed: int = 0,
        pcie: float | None = None,
        **settings: Unpack[Settings],
    ) -> tuple[HostsResult, RunResult]:
        """Let the hosts train.

        - ``learners``: makes all nodes' models in the simulator's process; picklable.
        - ``counts``: number of values per layer.
        - ``bits``: random bits of the nodes, for stochastic rounding; default: those of a new job.
        - ``groups``: groups with as many nodes; their workers then exchange in groups instead of one ring.
        - ``jobs``: settings of the jobs of groups, but for ``timeout`` and ``retries``.
        - ``stops``: nodes whose links are cut, with times in seconds.
        - ``timeout``: cycles until a node sends again.
        - ``retries``: retransmissions until a node fails.
        - ``seed``: seed of the links.
        - ``pcie``: bit/s in each direction between a node and its memory.

        Every sum is compared with the golden model's. Raises SimulationFailed if the run or a check fails.
        """
        link, stops = settings.get("link") or LinkConfig(), stops or {}
        sends_again = bool(link.drop or link.corrupt or link.reorder or stops)
        common: dict[str, Any] = {
            "learners": learners,
            "config": self.config,
            "stops": stops,
        }
        if groups is None:
            bits = bits or RandomBits()
            hosts = functools.partial(_hosts, Hosts, nodes=self.nodes, bits=bits, **common)
            programs = [self._start(node, timeout, retries, bits) for node in range(self.nodes)]
        else:
            jobs = replace(jobs or JobSettings(), timeout=timeout, retries=retries)
            hosts = functools.partial(_hosts, GroupHosts, plan=groups.plan, jobs=jobs, **common)
            programs = [HostProgram().extend(self.driver.identify().operations)] * self.nodes
        size = Buffers(self.config, tuple(counts)).size
        raw = self._cluster.run(
            memories=([np.zeros(size, np.uint8)] for _ in range(self.nodes)),
            phases=[Phase("start", programs)],
            longest_wait=retries * (timeout + 2) + 4 * timeout,
            hosts=hosts,
            independent_hosts=True,
            # Nodes count the timeout of a retransmission in cycles, so time must not be skipped before it.
            quiet_cycles=QUIET_CYCLES + timeout * sends_again,
            seed=seed,
            memory_gbps=None if pcie is None else pcie / 1e9,
            **settings,
        )
        check_identities(self.driver, raw.phases[0].reads)
        return raw.hosts, raw

    def _start(self, node: int, timeout: int, retries: int, bits: RandomBits) -> HostProgram:
        macs = [worker_endpoint(rank).mac for rank in range(self.nodes)]
        member = RingMember(id=JOB_ID, macs=macs, rank=node, timeout=timeout, retries=retries, bits=bits)
        driver, program = self.driver, HostProgram()
        for batch in driver.identify(), driver.configure(member), driver.start():
            program.extend(batch.operations)
        return program.poll_field(driver.registers, "status", "busy", 0)


def _hosts(kind: type[Hosts], board: Board, learners: Callable[[], Learners], **options: Any) -> Hosts:
    return kind(board, learners=learners(), **options)


def run_rtl(
    job: RingTraining,
    data: Dataset,
    state: State,
    *,
    link: LinkConfig | None = None,
    pcap: Path | None = None,
    link_log: Path | None = None,
    wave: Waveform | None = None,
    progress: Callable[[int], None] = lambda steps: None,
    quiet: bool = True,
) -> Outcome:
    """Carry out a job on simulated hardware from a state; ``progress`` is called with the steps all have made.

    Raises InputError for a missing tool, and SimulationFailed if the run or a check fails.
    """
    cosim = RingTrainingCosim(job.config, nodes=job.nodes, wave=wave, quiet=quiet)

    def report(state: RunProgress) -> None:
        if state.phases:
            progress(state.operations)

    result, _ = cosim.run(
        functools.partial(Learning, job, data, state),
        job.training.network.counts,
        bits=job.bits(state.step),
        groups=job.groups,
        jobs=JobSettings(
            barrier=job.barrier, rounding_seed=job.rounding_seed, first_job=job.first_job(state.step)
        ),
        stops=dict(job.stops),
        seed=job.training.seed,
        pcie=job.profile.pcie,
        link=link,
        pcap=pcap,
        link_log=link_log,
        progress=report,
    )
    return Outcome(result.learning_result, result.times, result.counters, result.rounds, result.start)
