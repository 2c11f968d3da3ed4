"""Models of the machines that P4SGD is compared with: CPUSync, GPUSync, and SwitchML on hosts.

docs/reference/benchmarks.md, "Baselines", explains the fitted inputs and the predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import log2

import numpy as np
import numpy.typing as npt

from fanin.glm.facts import PRESETS, TrainShape
from fanin.link import LinkConfig
from fanin.sim.glm.data import TABLE_II
from fanin.sim.glm.time import EpochTime
from fanin.sim.network import NetworkConfig

Float64 = npt.NDArray[np.float64]

P4SGD, GPU, CPU, SWITCHML = "P4SGD", "GPUSync", "CPUSync", "SwitchML"
WORKERS = 8  # in table IV and figure 8
BATCH = 64  # in figure 14; assumed for table IV's runs, too
T_L_NS = 1200.0  # section V-B
FP32_BYTES = 4
PASSES = 2  # passes over a mini-batch's samples: forward and backward
SECONDS = {  # table IV
    P4SGD: {"rcv1": 0.27, "avazu": 4.12},
    GPU: {"rcv1": 1.76, "avazu": 10.9},
    CPU: {"rcv1": 14.4, "avazu": 128.25},
}
WATTS = {P4SGD: 528.0, GPU: 920.0, CPU: 496.0}  # table IV, all eight workers together
JOULES = {(GPU, "avazu"): 10028.0}  # table IV
PEAK = {GPU: 1.555e12, CPU: 6 * 19.2e9}  # bytes/s, data sheets: A100 of 40 GB; Xeon 4214, six DDR4-2400
HOST_ALLREDUCE_NS = 10 * T_L_NS  # for 8 workers, section V-B: P4SGD is "an order of magnitude smaller"
JITTER_NS = 500.0  # assumed mean time of a host's software per message; the paper's whiskers have no numbers
#: Assumed: in the paper SwitchML takes longer than the other hosts, that is more than HOST_ALLREDUCE_NS.
SWITCHML_LINK = LinkConfig(host_ns=5500.0, host_jitter_ns=JITTER_NS, frame_bytes=256)


def p4sgd_epoch(name: str, *, workers: int = WORKERS, batch: int = BATCH, samples: int | None = None) -> float:
    """Return the seconds of an epoch on a set of table II at the paper's T_l; tests hold this model to RTL."""
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
    """Return the number of mini-batches of an epoch."""
    return -(-(samples or TABLE_II[name].samples) // batch)


@cache
def paper_mini_batches(name: str) -> float:
    """Return the mini-batches of table IV's runs: P4SGD's seconds by the seconds of our mini-batches."""
    return SECONDS[P4SGD][name] / p4sgd_epoch(name) * mini_batches(name)


@dataclass(frozen=True)
class Baseline:
    """Time model of hosts that train model-parallel."""

    fixed: float  #: seconds of a mini-batch that do not depend on the number of hosts
    allreduce: Callable[[int], float]  #: seconds of an AllReduce by number of hosts
    rate: float  #: bytes a second at which a host reads its samples

    def mini_batch(self, features: int, *, workers: int = WORKERS, batch: int = BATCH) -> float:
        """Return the seconds of a mini-batch."""
        read = _read_bytes(features, workers=workers, batch=batch) / self.rate
        return self.fixed + (self.allreduce(workers) if workers > 1 else 0.0) + read

    def epoch(
        self, name: str, *, workers: int = WORKERS, batch: int = BATCH, samples: int | None = None
    ) -> float:
        """Return the seconds of an epoch on a set of table II."""
        mini_batch_seconds = self.mini_batch(TABLE_II[name].features, workers=workers, batch=batch)
        return mini_batches(name, batch, samples) * mini_batch_seconds

    def run(self, name: str) -> float:
        """Return the seconds of table IV's run."""
        return paper_mini_batches(name) * self.mini_batch(TABLE_II[name].features)


def _read_bytes(features: int, *, workers: int, batch: int) -> int:
    """Return the bytes that a worker reads for a mini-batch: dense float32 samples."""
    return PASSES * batch * -(-features // workers) * FP32_BYTES


@cache
def baselines() -> dict[str, Baseline]:
    """Return CPUSync and GPUSync.

    CPUSync's two times in table IV give its rate and its fixed time. The rate is a share of its memory's peak,
    and GPUSync gets the same share of its own peak. GPUSync's time on rcv1 gives its fixed time. GPUSync's time
    on avazu is not used.
    """
    mini_batch_seconds = {name: SECONDS[CPU][name] / paper_mini_batches(name) for name in ("rcv1", "avazu")}
    read_bytes = {
        name: _read_bytes(TABLE_II[name].features, workers=WORKERS, batch=BATCH) for name in mini_batch_seconds
    }
    rate = (read_bytes["avazu"] - read_bytes["rcv1"]) / (
        mini_batch_seconds["avazu"] - mini_batch_seconds["rcv1"]
    )
    rates = {CPU: rate, GPU: rate * PEAK[GPU] / PEAK[CPU]}
    models = {}
    for machine, host_rate in rates.items():
        mini_batch = SECONDS[machine]["rcv1"] / paper_mini_batches("rcv1")
        fixed = mini_batch - read_bytes["rcv1"] / host_rate - _recursive_doubling(WORKERS)
        models[machine] = Baseline(fixed, _recursive_doubling, host_rate)
    return models


def _recursive_doubling(workers: int) -> float:
    """Return the seconds of an AllReduce of hosts in log2(workers) rounds."""
    return 1e-9 * HOST_ALLREDUCE_NS * log2(workers) / log2(WORKERS)


def switchml(allreduce: Callable[[int], float]) -> Baseline:
    """Return CPUSync with SwitchML's aggregation; ``allreduce``: seconds of an AllReduce by number of hosts."""
    return replace(baselines()[CPU], allreduce=allreduce)


def host_allreduce_ns(operations: int = 10_000) -> Float64:
    """Return times of AllReduces of eight hosts by recursive doubling, in ns: operation × host, mean as fitted.

    In each round a host sends to another host, and continues when it has that host's message. Every message is
    delayed by an exponentially distributed time.
    """
    rounds = int(log2(WORKERS))
    generator = np.random.default_rng(0)
    ready, hosts = np.zeros((operations, WORKERS)), np.arange(WORKERS)
    for step in range(rounds):
        sent = ready + generator.exponential(2 * JITTER_NS, ready.shape)  # software of two hosts
        ready = np.maximum(ready, sent[:, hosts ^ (1 << step)])
    return ready + HOST_ALLREDUCE_NS - ready.mean()


def switchml_network() -> NetworkConfig:
    """Return the network of SwitchML's hosts at our switch, without loss."""
    return NetworkConfig(link=SWITCHML_LINK, timeout_ns=1e6)
