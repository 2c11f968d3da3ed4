"""Groups of ring nodes in RTL: time and bytes of an exchange of 16 workers, compared with a single ring."""

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
COUNT = 1 << 16  # values
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
    in_groups = {name: Groups(GROUPS, MEMBERS, *levels).plan for name, levels in shapes.items()}
    return {"one ring": one_ring(GROUPS * MEMBERS)} | in_groups


def measure() -> Iterator[Result]:
    """Yield the figures; a simulation of all nodes is built for each codec, minutes each."""
    for name, codec in CODECS.items():
        yield from _codec(f"{GROUPS} × {MEMBERS} workers, {name}", replace(SIZES, codec=codec))


def _codec(name: str, config: RingConfig) -> Iterator[Result]:
    rng = np.random.default_rng(5)
    vectors = [rng.normal(0, 1e-2, COUNT).astype(np.float32) for _ in range(GROUPS * MEMBERS)]
    shapes = plans()
    cosim = GroupsCosim(config, nodes=max(plan.nodes for plan in shapes.values()))
    for shape, plan in shapes.items():
        yield from _plan(f"{name}, {shape}", cosim, plan, vectors)


def _plan(name: str, cosim: GroupsCosim, plan: Plan, vectors: list[Float32]) -> Iterator[Result]:
    run = cosim.exchange(vectors, plan)
    in_jobs = sum(each.seconds for each in run.rounds)
    model = GroupsTime(config=cosim.config, plan=plan, count=len(vectors[0]))
    rounds = f"{len(plan.rounds)} rounds" if len(plan.rounds) > 1 else "1 round"
    note = f"{rounds}; with barriers {number(1e6 * run.seconds)}, the model: {number(1e6 * model.total)}"
    yield Result(f"{name}: time in jobs", 1e6 * in_jobs, "µs", note=note)
    yield Result(f"{name}: off the model", 100 * abs(in_jobs / sum(model.rounds) - 1), "%", MAX_DEVIATION)
    sent = [each.data_bytes for each in run.rounds]
    levels: dict[str, int] = {}
    for each in run.rounds:
        levels[each.level] = levels.get(each.level, 0) + each.data_bytes
    note = "; ".join(f"{level} {number(size / 1e6)}" for level, size in levels.items())
    yield Result(f"{name}: DATA frames", sum(sent) / 1e6, "MB", note=note)
    expected = golden.data_bytes(vectors, cosim.config, plan)
    wrong = sum(abs(found - size) for found, size in zip(sent, expected, strict=True))
    yield Result(f"{name}: bytes off NumPy's", wrong, "bytes", 0, note="summed over the rounds")
    total = golden.exchange(vectors, cosim.config, plan).view(np.uint32)
    differ = sum(int((found.view(np.uint32) != total).sum()) for found in run.sums)
    yield Result(f"{name}: values wrong", differ, "values", 0, note="all workers' against NumPy")
