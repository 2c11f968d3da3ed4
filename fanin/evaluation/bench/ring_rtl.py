"""Benchmark of the ring in RTL: cycles against the time model, use of the links, exactness, logic depth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import Bf16, Bfp, CodecConfig, Fp16, Inceptionn, Mx
from fanin.codec.formats import Element
from fanin.evaluation.bench.area import depth_figures, map_parts
from fanin.evaluation.bench.result import Result, number
from fanin.hdl.arith.fp32 import FP32Adder
from fanin.hdl.codec.make import make_compressor, make_decompressor
from fanin.hdl.ring.node import RingNode
from fanin.link import LinkConfig
from fanin.ring.facts import PRESETS, RingConfig
from fanin.ring.golden import all_reduce
from fanin.sim.ring.cosim import RingCosim, RingRun
from fanin.sim.ring.loss import RingLoss
from fanin.sim.ring.time import RingTime

COUNT = 1 << 18  # values of an engine's stripe: 1 MiB
LOSS = "1 % loss"
#: probabilities of ``LinkConfig``, for each frame and link
FAULTS: dict[str, dict[str, Any]] = {
    LOSS: {"drop": 0.01},
    "5 % reordered": {"reorder": 0.05},
    "5 % duplicated": {"duplicate": 0.05},
}
SEEDS = 6  # runs with each fault
MODEL_SEEDS = 40  # runs of the model of losses
MAX_LOSS_DEVIATION = 5.0  # % of the model's time with losses
MAX_FAULT_RATIO = 1.3  # time with faults over time without
MAX_DEVIATION = 3.0  # % of the model's cycles
MIN_BUSY = 98.0  # % of the time, if the link is the bottleneck
TIMEOUT = 4000  # cycles: several round trips of a hop at 40 Gb/s or more
CODECS: dict[str, CodecConfig | None] = {
    "no codec": None,
    "BFP": Bfp(),
    "INCEPTIONN": Inceptionn(group=16),
    "MX e4m3": Mx(),
    "MX e2m1": Mx(Element.E2M1),
    "bfloat16": Bf16(),
    "binary16": Fp16(),
}
MAPPED = ("no codec", "BFP", "INCEPTIONN")  # codecs of the nodes whose depth is measured

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Point:
    """Rings to measure.

    - ``sizes``: sizes of a node.
    - ``rates``: rates of each engine's link, in Gb/s.
    - ``nodes``: numbers of nodes.
    - ``codecs``: names in ``CODECS``.
    - ``engines``: engines of a host, each with its own link.
    - ``faults``: names in ``FAULTS``.
    """

    name: str
    sizes: RingConfig
    rates: Sequence[float] = (100,)
    nodes: Sequence[int] = (3, 4, 5, 6)
    codecs: Sequence[str] = ("no codec", "BFP")
    engines: int = 1
    faults: Sequence[str] = tuple(FAULTS)


POINTS = (
    Point("16 lanes", PRESETS["u280"], codecs=MAPPED),
    Point("8 lanes", PRESETS["prototype"], rates=(40,)),  # the paper's prototype
    Point("4 × 16 lanes", PRESETS["u280"], nodes=(3,), engines=4),
)
#: Each codec whose streams have a fixed size, at three rates.
CODEC_RATES = Point(
    "codecs, 16 lanes",
    PRESETS["u280"],
    rates=(10, 25, 100),
    nodes=(4,),
    codecs=tuple(name for name in CODECS if name != "INCEPTIONN"),
    faults=(),
)


def measure() -> Iterator[Result]:
    """Yield the figures; a simulation is built for each codec of a point, a minute or two each."""
    for name in MAPPED:
        yield from _depth(name, RingConfig(codec=CODECS[name]))
    for point in POINTS:
        yield from measure_point(point)


def measure_point(point: Point) -> Iterator[Result]:
    """Yield the figures of the point's rings, codec by codec."""
    for name in point.codecs:
        yield from _point(point, name)


def _point(point: Point, codec: str) -> Iterator[Result]:
    rng, count = np.random.default_rng(5), point.engines * COUNT
    gradients = [rng.normal(0, 1e-2, count).astype(np.float32) for _ in range(max(point.nodes))]
    config = replace(point.sizes, codec=CODECS[codec])
    cosim = RingCosim(config, nodes=max(point.nodes), engines=point.engines)
    for gbps, nodes in itertools.product(point.rates, point.nodes):
        name = f"{point.name}, {gbps:g} Gb/s, {codec}, {nodes} nodes, {count >> 18} MiB"
        yield from _case(name, cosim, gradients[:nodes], LinkConfig(gbps=gbps), point.faults)


def _case(
    name: str, cosim: RingCosim, gradients: list[Float32], link: LinkConfig, faults: Sequence[str]
) -> Iterator[Result]:
    expected = all_reduce.striped(gradients, cosim.config, cosim.engines)
    run = _run(cosim, gradients, link)
    model = RingTime.of(gradients, cosim.config, link=link, engines=cosim.engines)
    microseconds = run.cycles * cosim.period_ps / 1e6
    note = f"{number(microseconds)} µs; the model: {number(round(model.total))}; bound by the {model.binds}"
    yield Result(f"{name}: cycles", run.cycles, "cycles", note=note)
    yield Result(f"{name}: off the model", 100 * abs(run.cycles / model.total - 1), "%", MAX_DEVIATION)
    busy = 100 * min(run.transmit_busy(node) for node in range(len(run.status)))
    limit = MIN_BUSY if model.binds == "link" else None
    yield Result(f"{name}: Tx link busy", busy, "% of time", limit, at_least=True, note="the idlest node's")
    yield Result(
        f"{name}: values wrong", wrong_values(run, expected), "values", 0, note="all nodes' against NumPy"
    )
    for fault in faults:
        trial_link = replace(link, **FAULTS[fault])
        trials = [_run(cosim, gradients, trial_link, seed) for seed in range(SEEDS)]
        ratio = sum(trial.cycles for trial in trials) / SEEDS / run.cycles
        note = f"mean of {SEEDS} seeds"
        yield Result(f"{name}, {fault}: time", ratio, "of faultless", MAX_FAULT_RATIO, note=note)
        if fault == LOSS:
            yield _off_the_loss_model(f"{name}, {fault}", ratio, replace(model, link=trial_link))
        wrong = sum(wrong_values(trial, expected) for trial in trials)
        yield Result(f"{name}, {fault}: values wrong", wrong, "values", 0)


def _off_the_loss_model(name: str, ratio: float, time: RingTime) -> Result:
    model = RingLoss(time)
    predicted = sum(model.ratio(seed) for seed in range(MODEL_SEEDS)) / MODEL_SEEDS
    off = 100 * abs(ratio / predicted - 1)
    return Result(f"{name}: off the model", off, "%", MAX_LOSS_DEVIATION, note=f"the model: {predicted:.3f}")


def _run(cosim: RingCosim, gradients: list[Float32], link: LinkConfig, seed: int = 0) -> RingRun:
    timeout = round(TIMEOUT * max(1.0, 40 / link.gbps))
    return cosim.all_reduce([[gradient] for gradient in gradients], link=link, timeout=timeout, seed=seed)


def wrong_values(run: RingRun, expected: Float32) -> int:
    """Return the number of values that differ in any bit; all values if a node failed or wrote elsewhere."""
    if run.failed or not run.intact:
        return expected.size
    return sum(int((result.view(np.uint32) != expected.view(np.uint32)).sum()) for (result,) in run.sums)


def _depth(name: str, config: RingConfig) -> Iterator[Result]:
    """Yield the depth of a node without its adders and its codec (see ``fanin bench codec``)."""
    parts = [FP32Adder()]
    if config.codec is not None:
        parts += [make(config.codec, config.width) for make in (make_compressor, make_decompressor)]
    area = map_parts(RingNode(config=config), parts, "", count_parts=False)
    yield from depth_figures(f"node, {name}", area)
