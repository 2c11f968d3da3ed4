"""Benchmark of planned networks in co-simulation: equality with golden models, and rate against the plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fanin.base.errors import CheckFailed
from fanin.cnn.facts import Network
from fanin.cnn.golden.network import initial_state
from fanin.cnn.run.hardware import hardware_of
from fanin.cnn.run.machine import Machine, ignore_progress
from fanin.cnn.run.models import Golden
from fanin.cnn.run.rtl import Rtl
from fanin.cnn.training import Job
from fanin.evaluation.bench.cluster_plans import as_built
from fanin.evaluation.bench.result import Result
from fanin.planner.cluster import Cluster, load_cluster
from fanin.planner.model.load import load_model
from fanin.planner.plan.network import PlannedNetwork
from fanin.planner.plan.sweep import best_plan
from fanin.planner.search.limits import Limits

LIMITS = Limits(seconds=60, workers=1, gap=0.02)
ROUNDING = 1e-9  # of shares as floats
MAX_BELOW_PLAN = 1.0  # % of the plan, where arithmetic limits
RATE, MOMENTUM = 0.02, 0.9


@dataclass(frozen=True)
class Case:
    """Training of a network on several Arria 10.

    - ``network``: name of the network.
    - ``devices``: number of devices.
    - ``dsp``: multipliers of each device, few enough that the network needs all devices.
    - ``batches``: number of batches.
    - ``batch``: frames of a batch.
    - ``seconds``: limit of the wall-clock time, in s; None: no limit.
    """

    network: str
    devices: int
    dsp: int
    batches: int
    batch: int
    seconds: float | None = None
    split: int = 1  #: parts of each layer in model parallelism; 1: none

    def __str__(self) -> str:
        suffix = f", MP{self.split}" if self.split > 1 else ""
        return f"{self.network} on {self.devices}{suffix}"

    @property
    def cluster(self) -> Cluster:
        """The devices."""
        cluster = load_cluster(f"arria10x{self.devices}")
        devices = [replace(device, part=replace(device.part, dsp=self.dsp)) for device in cluster.devices]
        return replace(cluster, devices=tuple(devices))

    def planned(self) -> PlannedNetwork:
        """Return the network as ``fanin cluster build`` reads its plan."""
        return as_built(best_plan(load_model(self.network), self.cluster, self.split, LIMITS))


CASES = (
    Case("digits_cnn", 1, 400, 3, 32),
    Case("digits_cnn", 2, 200, 3, 32),
    Case("digits_cnn", 3, 130, 3, 32),
    Case("listing1", 1, 1500, 2, 32),
    Case("listing1", 2, 760, 2, 32),
    Case("listing1", 3, 500, 2, 32),
    Case("listing1", 4, 780, 5, 64, seconds=120),
    Case("mobilenet_v2_32", 6, 400, 1, 16, seconds=300),
    Case("mobilenet_v2_32", 6, 400, 1, 16, split=2),
)


def measure(network: str | None) -> Iterator[Result]:
    """Yield the figures of one network, or of all; each build takes minutes. Raises CheckFailed."""
    for case in CASES:
        if network in (None, case.network):
            yield from _case_figures(case)


def _case_figures(case: Case) -> Iterator[Result]:
    planned = case.planned()
    start = time.perf_counter()
    machine = Rtl(planned, "c")
    yield Result(f"{case}: build", time.perf_counter() - start, "s")
    start = time.perf_counter()
    bits = _train(machine, planned.network, case)
    yield Result(f"{case}: {case.batches * case.batch} frames", time.perf_counter() - start, "s", case.seconds)
    if bits != _train(Golden(planned.network), planned.network, case):
        raise CheckFailed(f"{case}: RTL and golden model differ")
    hardware = hardware_of(planned, machine)
    assert hardware is not None  # it has trained
    rate, share = hardware["frames_per_second"], hardware["of_planned"]
    yield Result(f"{case}: throughput", rate, "frames/s", note=f"planned: {float(planned.throughput):,.0f}")
    if share > 1 + ROUNDING:
        raise CheckFailed(f"{case}: {rate:,.1f} frames/s are more than planned")
    yield Result(f"{case}: below the plan", 100 * (1 - share), "%", MAX_BELOW_PLAN)


def _train(machine: Machine, network: Network, case: Case) -> list[bytes]:
    """Train, and return the bits of all results and of the final state."""
    rng = np.random.default_rng(1)
    frames, images = case.batches * case.batch, network.stages[network.images].layer.output
    classes = network.stages[network.labels].layer.output.words
    machine.load(tuple(initial_state(network, 1)))
    features = rng.standard_normal((frames, images.h, images.w, images.c)).astype(np.float32)
    job = Job.of(frames, case.batch, RATE, MOMENTUM)
    outputs = machine.train(features, rng.integers(0, classes, frames), job, ignore_progress)
    return [outputs.tobytes(), *(state[name].tobytes() for state in machine.dump() for name in sorted(state))]
