"""NADA's two models on its clusters: plans, the timed flow model, and the paper's values."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from fanin.cnn.plan.execute import SWEEP_SECONDS, write_plan
from fanin.evaluation.bench.plan import plans_of
from fanin.evaluation.bench.result import Result
from fanin.planner.plan.network import PlannedNetwork, read_network
from fanin.planner.plan.plan import Plan

SECONDS = 60.0  # of MobileNetV2's search
DEVICES = range(3, 10)
LINEAR = 6  # devices up to which the paper's throughput grows linearly without model parallelism
LEAST_SHARE = 0.97  # of the plan's rate, where DRAM or the network limits
PAPER = {"streaming": 395, "updates": 359}  # frames a second that it measured


@dataclass(frozen=True)
class Timed:
    """A plan in the timed flow model: frames a second while they stream, and with updates."""

    plan: Plan
    streaming: float
    updates: float

    @property
    def planned(self) -> float:
        """Frames a second."""
        return float(self.plan.throughput)

    @property
    def how(self) -> str:
        """How its search ended."""
        if self.plan.optimal:
            return "optimal"
        ended = "its time was over" if dict(self.plan.statistics).get("stopped_by_clock") else "good enough"
        return f"{ended}, gap {100 * self.plan.gap:.1f} %"


def measure() -> Iterator[Result]:
    """Yield the figures as they are found, in some ten minutes."""
    yield from _mobilenet()
    yield from _example()


def _mobilenet() -> Iterator[Result]:
    [(_, _, plan)] = plans_of("mobilenet_v2", "arria10x6", [6], [1], SECONDS)
    found, name, place = timed(plan), "MobileNetV2 on six Arria 10", "cluster.mobilenet_v2"
    note = f"the paper measured {PAPER['streaming']}"
    yield Result(f"{name}: planned", found.planned, "frames/s", note=found.how, id=f"{place}.planned")
    yield _beside(name, place, found, note)
    updates = f"{name}: predicted with updates, batch {plan.batch}"
    note = f"the paper: {PAPER['updates']}, batch not stated"
    yield Result(updates, found.updates, "frames/s", note=note, id=f"{place}.predicted_with_updates")


def _example() -> Iterator[Result]:
    """Yield figures 5 and 6. The paper states only shares, which are in the notes."""
    found = plans_of("example_cnn", "arria10x9", DEVICES, [1, 2, 4], SWEEP_SECONDS)
    for count, ways, plan in found:
        if plan.split != ways:  # no better than one with less parallelism
            continue
        name, one = f"example CNN on {count}" + (f", MP{ways}" if ways > 1 else ""), timed(plan)
        place = f"cluster.example_cnn.devices_{count}.mp_{ways}"
        yield Result(f"{name}: planned", one.planned, "frames/s", note=one.how, id=f"{place}.planned")
        yield _beside(name, place, one, "")
    plans = {(count, ways): plan for count, ways, plan in found}
    few, most = min(DEVICES), max(DEVICES)
    each = [float(plans[count, 1].throughput) / count for count in (few, LINEAR)]
    yield Result(f"a device of {LINEAR}, beside one of {few}", each[1] / each[0], "", note="the paper: linear")
    shares = sorted(dram_shares(plans[most, 4]))
    name, place = f"the best on {most}: DRAM in use", f"cluster.example_cnn.devices_{most}.dram_in_use"
    note, mean = "the paper's MP4: 97", 100 * sum(shares) / most
    yield Result(f"{name}, least", 100 * shares[0], "%", note="the paper's MP4: well over 90")
    yield Result(f"{name}, mean", mean, "%", note=note, id=f"{place}.mean")
    yield Result(f"{name}, most", 100 * shares[-1], "%")


def _beside(name: str, place: str, found: Timed, note: str) -> Result:
    return Result(
        f"{name}: predicted",
        found.streaming,
        "frames/s",
        LEAST_SHARE * found.planned,
        at_least=True,
        note=note,
        id=f"{place}.predicted",
    )


def as_built(plan: Plan) -> PlannedNetwork:
    """Return a plan as ``fanin plan`` writes and ``fanin cluster build`` reads it."""
    with tempfile.TemporaryDirectory(prefix="fanin-") as folder:
        write_plan(Path(folder), plan)
        return read_network(Path(folder))


def timed(plan: Plan) -> Timed:
    """Return the prediction of ``fanin cluster build`` for a plan."""
    planned = as_built(plan)
    found = planned.prediction(plan.batch)
    return Timed(plan, planned.clock / found.period, planned.clock * found.frames_per_cycle(plan.batch))


def dram_shares(plan: Plan) -> Sequence[float]:
    """Return each device's share of its DRAM rate in use, for the busier of reads and writes."""
    devices = plan.instance.cluster.devices
    return [
        float(max(load.dram_read, load.dram_write) * plan.throughput / Fraction(device.part.dram))
        for load, device in zip(plan.loads, devices, strict=True)
    ]
