"""The machines that P4SGD is compared with, as models: CPUSync, GPUSync, and SwitchML on hosts.

What is fitted to which number of the paper, and what follows: docs/reference/benchmarks.md, "Baselines".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import log2

import numpy as np
import numpy.typing as npt

from fanin.glm.facts import PRESETS, TrainShape
from fanin.sim.glm.data import TABLE_II
from fanin.sim.glm.time import EpochTime
from fanin.sim.network import LinkConfig, NetworkConfig

Float64 = npt.NDArray[np.float64]

P4SGD, GPU, CPU, SWITCHML = "P4SGD", "GPUSync", "CPUSync", "SwitchML"
WORKERS = 8  # of table IV and figure 8
BATCH = 64  # of figure 14, which table IV's runs are taken to have, too
T_L_NS = 1200.0  # section V-B
FP32_BYTES = 4
PASSES = 2  # over a mini-batch's samples: forward and backward
SECONDS = {  # table IV
    P4SGD: {"rcv1": 0.27, "avazu": 4.12},
    GPU: {"rcv1": 1.76, "avazu": 10.9},
    CPU: {"rcv1": 14.4, "avazu": 128.25},
}
WATTS = {P4SGD: 528.0, GPU: 920.0, CPU: 496.0}  # table IV, of all eight
JOULES = {(GPU, "avazu"): 10028.0}  # table IV
PEAK = {GPU: 1.555e12, CPU: 6 * 19.2e9}  # bytes/s, data sheets: A100 of 40 GB; Xeon 4214, six DDR4-2400
HOST_ALLREDUCE_NS = 10 * T_L_NS  # of 8 workers, section V-B: P4SGD is "an order of magnitude smaller"
JITTER_NS = 500.0  # mean, of a host's software for a message: a guess, the paper has whiskers without numbers
#: A guess, too, for the paper says only that SwitchML takes longer than the others: above HOST_ALLREDUCE_NS.
SWITCHML_LINK = LinkConfig(host_ns=5500.0, host_jitter_ns=JITTER_NS, frame_bytes=256)


def p4sgd_epoch(name: str, *, workers: int = WORKERS, batch: int = BATCH, samples: int | None = None) -> float:
    """Seconds of an epoch on a set of table II at the paper's T_l; a model that is held to RTL."""
    shape = TrainShape(
        node=PRESETS["u280"],
        workers=workers,
        samples=samples or TABLE_II[name].samples,
        columns=TABLE_II[name].features,
        batch=batch,
    )
    time = EpochTime(shape=shape, link=LinkConfig(delay_ns=0, gbps=float("inf")), switch_ns=T_L_NS)
    return time.cycles / (time.clock_mhz * 1e6)


def mini_batches(name: str, batch: int = BATCH, samples: int | None = None) -> int:
    """Of an epoch."""
    return -(-(samples or TABLE_II[name].samples) // batch)


@cache
def paper_mini_batches(name: str) -> float:
    """Of table IV's runs: as many as P4SGD's seconds hold of ours."""
    return SECONDS[P4SGD][name] / p4sgd_epoch(name) * mini_batches(name)


@dataclass(frozen=True)
class Baseline:
    """Hosts that train model-parallel."""

    fixed: float  #: seconds of a mini-batch, however many hosts there are
    allreduce: Callable[[int], float]  #: seconds of an AllReduce of so many hosts
    rate: float  #: bytes a second that a host reads of its samples

    def mini_batch(self, features: int, *, workers: int = WORKERS, batch: int = BATCH) -> float:
        """Seconds of a mini-batch."""
        read = _read(features, workers=workers, batch=batch) / self.rate
        return self.fixed + (self.allreduce(workers) if workers > 1 else 0.0) + read

    def epoch(
        self, name: str, *, workers: int = WORKERS, batch: int = BATCH, samples: int | None = None
    ) -> float:
        """Seconds of an epoch on a set of table II."""
        took = self.mini_batch(TABLE_II[name].features, workers=workers, batch=batch)
        return mini_batches(name, batch, samples) * took

    def run(self, name: str) -> float:
        """Seconds of table IV's run."""
        return paper_mini_batches(name) * self.mini_batch(TABLE_II[name].features)


def _read(features: int, *, workers: int, batch: int) -> int:
    """Bytes that a worker reads for a mini-batch: dense float32 samples."""
    return PASSES * batch * -(-features // workers) * FP32_BYTES


@cache
def baselines() -> dict[str, Baseline]:
    """CPUSync and GPUSync.

    CPUSync's two seconds of table IV give its rate and what it takes beside reading. Its rate is a share of its
    memory's peak, and GPUSync gets that share of its own. GPUSync's seconds on rcv1 give what it takes beside
    reading. Its seconds on avazu are in nothing of this.
    """
    each = {name: SECONDS[CPU][name] / paper_mini_batches(name) for name in ("rcv1", "avazu")}
    read = {name: _read(TABLE_II[name].features, workers=WORKERS, batch=BATCH) for name in each}
    rate = (read["avazu"] - read["rcv1"]) / (each["avazu"] - each["rcv1"])
    rates = {CPU: rate, GPU: rate * PEAK[GPU] / PEAK[CPU]}
    found = {}
    for machine, reads in rates.items():
        mini_batch = SECONDS[machine]["rcv1"] / paper_mini_batches("rcv1")
        fixed = mini_batch - read["rcv1"] / reads - _recursive_doubling(WORKERS)
        found[machine] = Baseline(fixed, _recursive_doubling, reads)
    return found


def _recursive_doubling(workers: int) -> float:
    """Seconds of an AllReduce of hosts: log2(workers) rounds."""
    return 1e-9 * HOST_ALLREDUCE_NS * log2(workers) / log2(WORKERS)


def switchml(allreduce: Callable[[int], float]) -> Baseline:
    """CPUSync that aggregates by SwitchML; ``allreduce``: seconds of an AllReduce of so many hosts."""
    return replace(baselines()[CPU], allreduce=allreduce)


def host_allreduce_ns(operations: int = 10_000) -> Float64:
    """AllReduces of eight hosts by recursive doubling, in nanoseconds: operation × host, mean as fitted.

    In each round a host sends to another one, and goes on when it has the other's; every message takes longer
    by an exponential distribution.
    """
    rounds = int(log2(WORKERS))
    generator = np.random.default_rng(0)
    ready, hosts = np.zeros((operations, WORKERS)), np.arange(WORKERS)
    for step in range(rounds):
        sent = ready + generator.exponential(2 * JITTER_NS, ready.shape)  # two hosts' software
        ready = np.maximum(ready, sent[:, hosts ^ (1 << step)])
    return ready + HOST_ALLREDUCE_NS - ready.mean()


def switchml_network() -> NetworkConfig:
    """SwitchML's hosts around our switch; no packet is lost."""
    return NetworkConfig(link=SWITCHML_LINK, timeout_ns=1e6)
