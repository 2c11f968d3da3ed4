"""Asynchronous training on simulated hardware: RTL NICs and RTL servers in one top, workers in NumPy."""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fanin.config import CLOCK_MHZ
from fanin.errors import InputError
from fanin.hdl.net.param_server.driver import ParamServerDriver
from fanin.hdl.net.param_server.node import ParamServerNode
from fanin.hdl.net.rdma.driver import RdmaDriver
from fanin.hdl.net.rdma.node import RdmaNode
from fanin.job import worker_endpoint
from fanin.param_server import ParamServerConfig, ServerLayout, WorkerLayout
from fanin.rdma import FIRST_QUEUE_PAIR, MAX_QUEUE_PAIRS, RdmaConfig, Region, payload_words
from fanin.sim.cosim.clock import mac_rate, period_of
from fanin.sim.cosim.param_server_hosts import SERVER_KEY, Hosts, WildRun
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.rdma import Pair, configure_node
from fanin.sim.cosim.run import Phase, Progress, RunRequest
from fanin.sim.cosim.simulator import Group, Simulator
from fanin.sim.models.learning import Learner
from fanin.sim.models.wild import Algorithm, Job, Outcome
from fanin.sim.models.wild import Progress as Told
from fanin.sim.network import LinkConfig
from fanin.sim.switch.forward import Forwarder

WORKER_KEY = 0x1000  # and a shard: the key of its model buffers at a worker
WINDOW = 256  # packets in flight


def _nic(partners: int, width: int) -> RdmaConfig:
    """A NIC with a queue pair and a region for each partner."""
    count = max(2, 1 << (partners - 1).bit_length())
    words = max(512, 4 * payload_words(width))
    return RdmaConfig(width=width, queue_pairs=count, regions=count, buffer_words=words, fetch_words=words)


class ParamServerCosim:
    """Workers and servers of the given sizes behind a forwarding switch, built once; each ``run`` begins anew.

    Nodes are the workers, then the servers. Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(self, sizes: ParamServerConfig, *, clock_mhz: float = CLOCK_MHZ, quiet: bool = False):
        if sizes.workers > MAX_QUEUE_PAIRS:
            raise InputError(
                f"workers must be at most {MAX_QUEUE_PAIRS}, the queue pairs of a server, not {sizes.workers}"
            )
        self.sizes = sizes
        self.period_ps = period_of(clock_mhz)
        at_worker, at_server = _nic(sizes.servers, sizes.width), _nic(sizes.workers, sizes.width)
        self.worker_driver, self.server_driver = RdmaDriver(at_worker), ParamServerDriver(at_server)
        self._simulator = Simulator(
            [
                Group(RdmaNode(config=at_worker), sizes.workers),
                Group(ParamServerNode(config=at_server), sizes.servers),
            ],
            quiet=quiet,
        )

    def run(
        self,
        job: Job,
        learner: Learner,
        *,
        mtu: int = 4096,
        link: LinkConfig | None = None,
        switch_ns: float = 400.0,
        timeout: int = 5_000,
        retries: int = 7,
        pcap: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> WildRun:
        """Carry a job out; ``timeout`` is in cycles.

        Of ``job.costs`` only a worker's own ``copy`` of the model counts: all else is what the hardware takes.
        Every row that a server sends is compared with the golden server's. Raises SimulationFailed when it
        cannot go on, or a row differs.
        """
        link, sizes = link or LinkConfig(), self.sizes
        initial = learner.initial().astype(np.float32)
        hosts = functools.partial(
            Hosts, job=job, learner=learner, sizes=sizes, initial=initial, driver=self.worker_driver
        )
        with tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
            request = RunRequest(
                nodes=sizes.workers + sizes.servers,
                period_ps=self.period_ps,
                memories=self._memories(Path(temporary), initial),
                phases=[Phase("configure", self._programs(job, mtu, timeout, retries))],
                hosts=hosts,
                switch=functools.partial(Forwarder.of, [worker_endpoint(n).mac for n in range(self.nodes)]),
                jobs=[],
                link=link,
                switch_ns=switch_ns,
                seed=job.seed,
                mac_bytes_per_cycle=mac_rate(link, self.period_ps, sizes.width),
                watchdog=100_000 + 20 * timeout,
                quiet_cycles=600 + timeout,
                pcap=pcap,
            )
            raw = self._simulator.run(request, progress=progress)
        run: WildRun = raw.hosts
        run.raw = raw
        return run

    @property
    def nodes(self) -> int:
        """Workers and servers."""
        return self.sizes.workers + self.sizes.servers

    def _memories(self, work: Path, initial: npt.NDArray[np.float32]) -> list[list[Path]]:
        """Zeros, and w in row 0 of every server; a server's ports are all to one memory."""
        sizes, files = self.sizes, []
        for worker in range(sizes.workers):
            path = work / f"worker{worker}"
            np.zeros(WorkerLayout(sizes).size, np.uint8).tofile(path)
            files.append([path])
        for shard in range(sizes.servers):
            layout, path = ServerLayout(sizes, shard), work / f"server{shard}"
            memory = np.zeros(layout.size, np.uint8)
            first = sizes.shard_start(shard)
            w = initial[first : first + sizes.shard_values(shard)].view(np.uint8)
            memory[layout.row(0).w : layout.row(0).w + w.size] = w
            memory.tofile(path)
            files.append([path] * len(self._simulator.ports[sizes.workers + shard].memories))
        return files

    def _programs(self, job: Job, mtu: int, timeout: int, retries: int) -> list[HostProgram]:
        """Queue pairs between every worker and every server, regions for both, the servers' job."""
        sizes = self.sizes
        limits = {"mtu": mtu, "window": WINDOW, "retries": retries}
        pairs = [
            Pair.of((worker, shard), (sizes.workers + shard, worker), **limits)
            for worker in range(sizes.workers)
            for shard in range(sizes.servers)
        ]
        layout = WorkerLayout(sizes)
        buffers = [
            Region(*layout.region(shard), WORKER_KEY + shard, frozenset([FIRST_QUEUE_PAIR + shard]))
            for shard in range(sizes.servers)
        ]
        programs = [
            configure_node(self.worker_driver, worker, pairs, buffers, timeout=timeout)
            for worker in range(sizes.workers)
        ]
        return programs + [self._server(job, shard, pairs, timeout) for shard in range(sizes.servers)]

    def _server(self, job: Job, shard: int, pairs: list[Pair], timeout: int) -> HostProgram:
        sizes, driver, layout = self.sizes, self.server_driver, ServerLayout(self.sizes, shard)
        tables = [
            Region(*layout.region(worker), SERVER_KEY + worker, frozenset([FIRST_QUEUE_PAIR + worker]))
            for worker in range(sizes.workers)
        ]
        program = configure_node(driver, sizes.workers + shard, pairs, tables, timeout=timeout)
        program.extend(driver.set_job(layout, np.float32(job.rate / sizes.workers)).operations)
        there, _ = WorkerLayout(sizes).region(shard)
        for worker in range(sizes.workers):
            entry = driver.set_worker(worker, layout, buffers=there, rkey=WORKER_KEY + shard)
            program.extend(entry.operations)
            program.poll_field(driver.registers, "status", "setting", 0)
        return program.extend(driver.start().operations)


def run_rtl(
    job: Job,
    learner: Learner,
    progress: Told | None = None,
    *,
    link: LinkConfig | None = None,
    pcap: Path | None = None,
    width: int = 512,
    quiet: bool = True,
) -> Outcome:
    """Carry a job out on simulated hardware, as ``sim.models.wild.run`` does on a model of it.

    Raises ValueError for sizes that do not fit, InputError for what the hardware cannot do or a missing tool,
    SimulationFailed when it cannot go on.
    """
    if job.algorithm is Algorithm.SYNC:
        raise InputError("--algorithm sync runs on the model only: --on model")
    sizes = ParamServerConfig(
        parameters=learner.parameters, workers=job.workers, slots=job.slots, servers=job.servers, width=width
    )
    cosim = ParamServerCosim(sizes, quiet=quiet)

    def told(now: Progress) -> None:
        if progress and now.phases:
            progress(now.operations, math.nan)

    return cosim.run(job, learner, link=link, pcap=pcap, progress=told).outcome
