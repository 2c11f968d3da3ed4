"""Benchmark of groups of ring nodes in RTL: time and bytes of an exchange of 16 workers, against one ring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import Bfp, CodecConfig
from fanin.evaluation.bench.result import Result, number
from fanin.ring.facts import PRESETS, RingConfig
from fanin.ring.golden import groups as golden
from fanin.ring.groups import Groups, Plan, Scheme, one_ring
from fanin.sim.ring.groups import GroupsCosim
from fanin.sim.ring.groups_time import GroupsTime

SIZES = PRESETS["u280"]
COUNT = 1 << 16  # values of a vector
GROUPS, MEMBERS = 4, 4
MAX_DEVIATION = 5.0  # % of the model's time
CODECS: dict[str, CodecConfig | None] = {"no codec": None, "BFP": Bfp()}

Float32 = npt.NDArray[np.float32]


def plans() -> dict[str, Plan]:
    """Return the plans to compare, by name: figure 1 of the INCEPTIONN paper, and two more."""
    ring, aggregator = Scheme.RING, Scheme.AGGREGATOR
    shapes = {
        "(c) ring of rings": (ring, ring),
        "(b) rings below an aggregator": (ring, aggregator),
        "aggregators in a ring": (aggregator, ring),
        "(a) aggregators below an aggregator": (aggregator, aggregator),
    }
    grouped = {name: Groups(GROUPS, MEMBERS, *levels).plan for name, levels in shapes.items()}
    return {"one ring": one_ring(GROUPS * MEMBERS)} | grouped


def measure() -> Iterator[Result]:
    """Yield the figures; a simulation of all nodes is built for each codec, minutes each."""
    for name, codec in CODECS.items():
        yield from _codec(f"{GROUPS} × {MEMBERS} workers, {name}", replace(SIZES, codec=codec))


def _codec(name: str, config: RingConfig) -> Iterator[Result]:
    rng = np.random.default_rng(5)
    vectors = [rng.normal(0, 1e-2, COUNT).astype(np.float32) for _ in range(GROUPS * MEMBERS)]
    plan_by_name = plans()
    cosim = GroupsCosim(config, nodes=max(plan.nodes for plan in plan_by_name.values()))
    for shape, plan in plan_by_name.items():
        yield from _plan(f"{name}, {shape}", cosim, plan, vectors)


def _plan(name: str, cosim: GroupsCosim, plan: Plan, vectors: list[Float32]) -> Iterator[Result]:
    run = cosim.exchange(vectors, plan)
    job_seconds = sum(round_.seconds for round_ in run.rounds)
    model = GroupsTime(config=cosim.config, plan=plan, count=len(vectors[0]))
    rounds = f"{len(plan.rounds)} rounds" if len(plan.rounds) > 1 else "1 round"
    note = f"{rounds}; with barriers {number(1e6 * run.seconds)}, the model: {number(1e6 * model.total)}"
    yield Result(f"{name}: time in jobs", 1e6 * job_seconds, "µs", note=note)
    yield Result(f"{name}: off the model", 100 * abs(job_seconds / sum(model.rounds) - 1), "%", MAX_DEVIATION)
    sent_bytes = [round_.data_bytes for round_ in run.rounds]
    bytes_by_level: dict[str, int] = {}
    for round_ in run.rounds:
        bytes_by_level[round_.level] = bytes_by_level.get(round_.level, 0) + round_.data_bytes
    note = "; ".join(f"{level} {number(size / 1e6)}" for level, size in bytes_by_level.items())
    yield Result(f"{name}: DATA frames", sum(sent_bytes) / 1e6, "MB", note=note)
    expected = golden.data_bytes(vectors, cosim.config, plan)
    byte_difference = sum(abs(sent - size) for sent, size in zip(sent_bytes, expected, strict=True))
    yield Result(f"{name}: bytes off NumPy's", byte_difference, "bytes", 0, note="summed over the rounds")
    total = golden.exchange(vectors, cosim.config, plan).view(np.uint32)
    wrong_values = sum(int((result.view(np.uint32) != total).sum()) for result in run.sums)
    yield Result(f"{name}: values wrong", wrong_values, "values", 0, note="all workers' against NumPy")
