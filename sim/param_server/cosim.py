# amaranth: UnusedElaboratable=no
"""Asynchronous training on simulated hardware: RTL NICs and RTL servers in one top, workers in NumPy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.param_server.node import ParamServerNode
from fanin.hdl.param_server.server_control import Refusal
from fanin.hdl.rdma.node import RdmaNode
from fanin.link import LinkConfig
from fanin.param_server.driver import ParamServerDriver
from fanin.param_server.facts import (
    MAX_SERVERS,
    Algorithm,
    ParamServerConfig,
    PushAfter,
    ServerLayout,
    WorkerLayout,
)
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import FIRST_QUEUE_PAIR, MAX_QUEUE_PAIRS, MAX_RETRIES, RdmaConfig, Region, payload_words
from fanin.sim.cosim.cluster import Cluster, Settings, check_identities
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import QUIET_CYCLES, Bytes, Phase, RunResult
from fanin.sim.cosim.run import Progress as RunProgress
from fanin.sim.cosim.simulator import Group, SimulationFailed
from fanin.sim.cosim.view import FrameFormat
from fanin.sim.cosim.waves import Waveform
from fanin.sim.learning.learner import Learner
from fanin.sim.param_server.costs import timeout_seconds
from fanin.sim.param_server.hosts import SERVER_KEY, WORKER_KEY, Hosts, WildRun
from fanin.sim.param_server.training import Outcome, Progress, TrainingJob
from fanin.sim.rdma.cosim import Pair, configure_node, name_refusal
from fanin.wire.rdma import BTH, BTH_AT, Opcode

WINDOW = 256  # packets in flight
_REFUSALS = {"status": {"refused": Refusal}}  # checked by host programs of servers
_FRAMES = FrameFormat(BTH, BTH_AT, ("opcode", "queue_pair", "psn"), {"opcode": Opcode})


def _nic(partners: int, width: int) -> RdmaConfig:
    """Return a NIC with a queue pair and a region for each partner."""
    count = max(2, 1 << (partners - 1).bit_length())
    words = max(512, 4 * payload_words(width))
    return RdmaConfig(width=width, queue_pairs=count, regions=count, buffer_words=words, fetch_words=words)


class ParamServerCosim:
    """Workers and servers at a forwarding switch, built once; each ``run`` starts from reset.

    Nodes are the workers, then the servers; their words have ``width`` bits. ``quiet`` prints no progress of
    the build. Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(
        self,
        *,
        workers: int,
        servers: int = 1,
        width: int = 512,
        clock_mhz: float = CLOCK_MHZ,
        wave: Waveform | None = None,
        quiet: bool = False,
    ):
        if not 1 <= workers <= MAX_QUEUE_PAIRS:
            raise InputError(
                f"workers must be 1 to {MAX_QUEUE_PAIRS}, the queue pairs of a server, not {workers}"
            )
        if not 1 <= servers <= MAX_SERVERS:
            raise InputError(f"servers must be 1 to {MAX_SERVERS}, not {servers}")
        self.workers, self.servers, self.width = workers, servers, width
        at_worker, at_server = _nic(servers, width), _nic(workers, width)
        self.worker_driver, self.server_driver = RdmaDriver(at_worker), ParamServerDriver(at_server)
        self._cluster = Cluster(
            lambda: [
                Group(RdmaNode(config=at_worker), workers, frames=_FRAMES),
                Group(ParamServerNode(config=at_server), servers, frames=_FRAMES),
            ],
            clock_mhz=clock_mhz,
            wave=wave,
            quiet=quiet,
        )
        self.period_ps = self._cluster.period_ps

    def sizes(self, job: TrainingJob, learner: Learner) -> ParamServerConfig:
        """Return a job's sizes. Raises ValueError for a job larger than built or impossible to check."""
        if job.returns and job.push_after is PushAfter.SCAN:
            raise ValueError("push_after must not be scan where a worker is replaced in RTL")
        for name, limit in ("workers", self.workers), ("servers", self.servers):
            if getattr(job, name) > limit:
                raise ValueError(f"{name} must be at most {limit}, as built, not {getattr(job, name)}")
        return ParamServerConfig(
            parameters=learner.parameters,
            workers=job.workers,
            slots=job.slots,
            servers=job.servers,
            width=self.width,
        )

    def run(
        self,
        job: TrainingJob,
        learner: Learner,
        *,
        mtu: int = 4096,
        timeout: int | None = None,
        retries: int = MAX_RETRIES,
        **settings: Unpack[Settings],
    ) -> WildRun:
        """Carry out a job on as many of the nodes as it has.

        - ``mtu``: path MTU of queue pairs.
        - ``timeout``: cycles until an unacknowledged packet is sent again; default: ``write_timeout``.
        - ``retries``: retransmissions until a queue pair ends.
        - ``settings``: those of ``Cluster.run``.

        Of ``job.costs`` only a worker's ``copy`` of the model counts; the hardware determines all other times.
        Every row that a server sends is compared with the golden server's. Raises ValueError for a job that
        does not fit, and SimulationFailed if the run fails or a row differs.
        """
        link, sizes = settings.get("link") or LinkConfig(), self.sizes(job, learner)
        if timeout is None:
            timeout = write_timeout(sizes, link, self.period_ps)
        sends_again = bool(link.drop or link.corrupt or job.stops)
        initial = learner.initial().astype(np.float32)
        hosts = functools.partial(
            Hosts,
            job=job,
            learner=learner,
            sizes=sizes,
            initial=initial,
            driver=self.worker_driver,
            server_driver=self.server_driver,
            first_server=self.workers,
            limits={"mtu": mtu, "window": WINDOW, "retries": retries},
            give_up_seconds=(1 + retries) * timeout * self.period_ps * 1e-12 if sends_again else None,
        )
        try:
            raw = self._cluster.run(
                memories=self._memories(sizes, initial),
                phases=[Phase("configure", self._programs(job, sizes, mtu, timeout, retries))],
                longest_wait=20 * timeout,
                seed=job.seed,
                hosts=hosts,
                # Nodes count the timeout of a retransmission in cycles, so time must not be skipped before it.
                quiet_cycles=QUIET_CYCLES + timeout * sends_again,
                independent_hosts=True,
                **settings,
            )
        except SimulationFailed as failure:
            check = failure.result.failed_check if failure.result else None
            if check and check.node >= self.workers:
                raise name_refusal(failure, self.server_driver, _REFUSALS) from None
            raise name_refusal(failure, self.worker_driver) from None
        (configured,) = raw.phases
        check_identities(self.worker_driver, configured.reads[: sizes.workers])
        check_identities(self.server_driver, configured.reads[self.workers :][: sizes.servers])
        run: WildRun = raw.hosts
        run.raw = raw
        return run

    def _memories(self, sizes: ParamServerConfig, initial: npt.NDArray[np.float32]) -> Iterator[list[Bytes]]:
        """Yield the initial memories: zeros, and w in row 0 of every server."""
        for worker in range(self.workers):
            yield [np.zeros(WorkerLayout(sizes).size if worker < sizes.workers else 0, np.uint8)]
        for shard in range(sizes.servers):
            layout, first = ServerLayout(sizes, shard), sizes.shard_start(shard)
            memory, row = np.zeros(layout.size, np.uint8), layout.row(0)
            w = initial[first : first + sizes.shard_values(shard)].view(np.uint8)
            memory[row.w : row.w + w.size] = w
            yield [memory]

    def _programs(
        self, job: TrainingJob, sizes: ParamServerConfig, mtu: int, timeout: int, retries: int
    ) -> list[HostProgram]:
        """Return programs that connect every worker with every server, set regions, and start servers."""
        pairs = [
            Pair.of((worker, shard), (self.workers + shard, worker), mtu=mtu, window=WINDOW, retries=retries)
            for worker in range(sizes.workers)
            for shard in range(sizes.servers)
        ]
        layout = WorkerLayout(sizes)
        buffers = [
            Region(*layout.region(shard), WORKER_KEY + shard, frozenset([FIRST_QUEUE_PAIR + shard]))
            for shard in range(sizes.servers)
        ]
        programs = [HostProgram() for _ in range(self.workers + sizes.servers)]
        for worker in range(sizes.workers):
            programs[worker] = configure_node(self.worker_driver, worker, pairs, buffers, timeout=timeout)
        for shard in range(sizes.servers):
            node = self.workers + shard
            tables = [
                Region(*ServerLayout(sizes, shard).region(n), SERVER_KEY + n, frozenset([FIRST_QUEUE_PAIR + n]))
                for n in range(sizes.workers)
            ]
            program = configure_node(self.server_driver, node, pairs, tables, timeout=timeout)
            programs[node] = self._set_job(program, job, sizes, shard)
        return programs

    def _set_job(
        self, program: HostProgram, job: TrainingJob, sizes: ParamServerConfig, shard: int
    ) -> HostProgram:
        driver, layout = self.server_driver, ServerLayout(sizes, shard)
        step = np.float32(job.lr / sizes.workers)
        pushes = {
            "barrier": job.algorithm is Algorithm.SYNC,
            "broadcast": job.broadcasts,
            "scan": job.push_after is PushAfter.SCAN,
        }
        program.extend(driver.set_job(layout, step, **pushes).operations)
        buffers, _ = WorkerLayout(sizes).region(shard)
        for worker in range(sizes.workers):
            entry = driver.set_worker(worker, layout, buffers=buffers, rkey=WORKER_KEY + shard)
            program.extend(entry.operations)
            program.poll_field(driver.registers, "status", "setting", 0)
            program.check_field(driver.registers, "status", "refused", Refusal.NONE)
        program.extend(driver.start().operations)
        return program.check_field(driver.registers, "status", "refused", Refusal.NONE)


def write_timeout(sizes: ParamServerConfig, link: LinkConfig, period_ps: int) -> int:
    """Return the timeout of a packet in cycles: longer than all gradients in flight on one link take."""
    size = max(ServerLayout(sizes, shard).slot(0, 0).size for shard in range(sizes.servers))
    period = period_ps * 1e-12
    bits_a_second = min(link.gbps * 1e9, sizes.width / period)
    return math.ceil(timeout_seconds(sizes.writes_on_a_link, 8 * size / bits_a_second) / period)


def run_rtl(
    job: TrainingJob,
    learner: Learner,
    progress: Progress | None = None,
    *,
    link: LinkConfig | None = None,
    pcap: Path | None = None,
    link_log: Path | None = None,
    wave: Waveform | None = None,
    width: int = 512,
    quiet: bool = True,
    finished: Callable[[RunResult], None] | None = None,
) -> Outcome:
    """Carry out a job on simulated hardware, as ``fanin.sim.param_server.events.run`` does on an event model.

    ``finished`` is called with the simulator's result. Raises ValueError for sizes that do not fit, InputError
    for a missing tool, and SimulationFailed if the run fails.
    """
    cosim = ParamServerCosim(workers=job.workers, servers=job.servers, width=width, wave=wave, quiet=quiet)

    def report(state: RunProgress) -> None:
        if progress and state.phases:
            progress(state.operations, math.nan, ())

    wild_run = cosim.run(job, learner, link=link, pcap=pcap, link_log=link_log, progress=report)
    if finished:
        finished(wild_run.raw)
    return wild_run.outcome
