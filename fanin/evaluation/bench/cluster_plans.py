"""Benchmark of NADA's two models on its clusters: plans, the timed flow model, and the paper's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from fanin.cnn.plan.options import SWEEP_SECONDS
from fanin.evaluation.bench.plan import plans_of
from fanin.evaluation.bench.result import Result
from fanin.planner.plan.network import PlannedNetwork, planned_network
from fanin.planner.plan.plan import Plan
from fanin.planner.plan.write import plan_documents

SEARCH_SECONDS = 60.0  # time limit of MobileNetV2's search
DEVICES = range(3, 10)  # numbers of devices for the example CNN
LINEAR_DEVICES = 6  # devices up to which the paper's throughput grows linearly without model parallelism
MIN_SHARE = 0.97  # least ratio of the predicted to the planned throughput, where DRAM or the network limits
PAPER = {"streaming": 395, "updates": 359}  # measured frames a second of MobileNetV2, without and with updates


@dataclass(frozen=True)
class TimedPlan:
    """A plan and its throughput in the timed flow model, in frames a second.

    ``streaming``: without updates. ``updates``: with an update after each batch.
    """

    plan: Plan
    streaming: float
    updates: float

    @property
    def planned(self) -> float:
        """Planned throughput, in frames a second."""
        return float(self.plan.throughput)

    @property
    def search_outcome(self) -> str:
        """End of the plan's search, as text: optimal, or the reason and the remaining gap."""
        if self.plan.optimal:
            return "optimal"
        reason = "its time was over" if dict(self.plan.statistics).get("stopped_by_clock") else "good enough"
        return f"{reason}, gap {100 * self.plan.gap:.1f} %"


def measure() -> Iterator[Result]:
    """Yield the figures as they are found, in some ten minutes."""
    yield from _mobilenet()
    yield from _example()


def _mobilenet() -> Iterator[Result]:
    [(_, _, plan)] = plans_of("mobilenet_v2", "arria10x6", [6], [1], SEARCH_SECONDS)
    timed_plan, name, id_prefix = predict(plan), "MobileNetV2 on six Arria 10", "cluster.mobilenet_v2"
    note = f"the paper measured {PAPER['streaming']}"
    yield Result(
        f"{name}: planned",
        timed_plan.planned,
        "frames/s",
        note=timed_plan.search_outcome,
        id=f"{id_prefix}.planned",
    )
    yield _prediction(name, id_prefix, timed_plan, note)
    text = f"{name}: predicted with updates, batch {plan.batch}"
    note = f"the paper: {PAPER['updates']}, batch not stated"
    yield Result(text, timed_plan.updates, "frames/s", note=note, id=f"{id_prefix}.predicted_with_updates")


def _example() -> Iterator[Result]:
    """Yield figures 5 and 6. The paper states only shares, which are in the notes."""
    rows = plans_of("example_cnn", "arria10x9", DEVICES, [1, 2, 4], SWEEP_SECONDS)
    for count, parts, plan in rows:
        if plan.split != parts:  # no better than one with less parallelism
            continue
        name, timed_plan = f"example CNN on {count}" + (f", MP{parts}" if parts > 1 else ""), predict(plan)
        id_prefix = f"cluster.example_cnn.devices_{count}.mp_{parts}"
        yield Result(
            f"{name}: planned",
            timed_plan.planned,
            "frames/s",
            note=timed_plan.search_outcome,
            id=f"{id_prefix}.planned",
        )
        yield _prediction(name, id_prefix, timed_plan, "")
    plan_of = {(count, parts): plan for count, parts, plan in rows}
    smallest, largest = min(DEVICES), max(DEVICES)
    rates = [float(plan_of[count, 1].throughput) / count for count in (smallest, LINEAR_DEVICES)]
    yield Result(
        f"a device of {LINEAR_DEVICES}, beside one of {smallest}",
        rates[1] / rates[0],
        "",
        note="the paper: linear",
    )
    shares = sorted(dram_shares(plan_of[largest, 4]))
    name = f"the best on {largest}: DRAM in use"
    id_prefix = f"cluster.example_cnn.devices_{largest}.dram_in_use"
    note, mean = "the paper's MP4: 97", 100 * sum(shares) / largest
    yield Result(f"{name}, least", 100 * shares[0], "%", note="the paper's MP4: well over 90")
    yield Result(f"{name}, mean", mean, "%", note=note, id=f"{id_prefix}.mean")
    yield Result(f"{name}, most", 100 * shares[-1], "%")


def _prediction(name: str, id_prefix: str, timed_plan: TimedPlan, note: str) -> Result:
    """Return the predicted throughput, with its limit relative to the plan."""
    return Result(
        f"{name}: predicted",
        timed_plan.streaming,
        "frames/s",
        MIN_SHARE * timed_plan.planned,
        at_least=True,
        note=note,
        id=f"{id_prefix}.predicted",
    )


def as_built(plan: Plan) -> PlannedNetwork:
    """Return the network of a plan as ``fanin cluster build`` builds it."""
    return planned_network(plan_documents(plan))


def predict(plan: Plan) -> TimedPlan:
    """Return the prediction of ``fanin cluster build`` for a plan."""
    planned = as_built(plan)
    prediction = planned.prediction(plan.batch)
    return TimedPlan(
        plan, planned.clock / prediction.period, planned.clock * prediction.frames_per_cycle(plan.batch)
    )


def dram_shares(plan: Plan) -> Sequence[float]:
    """Return each device's share of its DRAM rate in use, for the busier of reads and writes."""
    devices = plan.instance.cluster.devices
    return [
        float(max(load.dram_read, load.dram_write) * plan.throughput / Fraction(device.part.dram))
        for load, device in zip(plan.loads, devices, strict=True)
    ]
