"""Scaling over ranks: timed runs, compared with a model that then predicts more ranks."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fanin import fixed
from fanin.base.errors import InputError, ToolFailed
from fanin.base.limits import CLOCK_MHZ
from fanin.base.scratch import write_file
from fanin.base.tools import python_module
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.page import table
from fanin.evaluation.bench.result import Result
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.runs.output import check_writable
from fanin.sim.cosim.clock import Clock, period_of
from fanin.sim.cosim.meeting import window
from fanin.sim.glm.cosim import Cosim
from fanin.sim.network import SWITCH_NS, LinkConfig, least_trip
from fanin.sim.scale.model import Costs, Load
from fanin.sim.scale.point import Measured, rank_cost

PAGE, NAME = "scale.md", "scale"
MAX_ERROR = 10.0  # percent
NODES = (1, 4, 16, 64, 256, 1024)
MACHINES = (1, 4, 16, 64)
GLM_NODES = 2
_TIMEOUT = 1800.0
_WINDOW = window(least_trip(LinkConfig(), SWITCH_NS), Clock(period_of(CLOCK_MHZ)))  # cycles between meetings


class Point(NamedTuple):
    """A run to be timed: ring nodes, values of each vector, ranks; seconds that each meeting is delayed."""

    nodes: int
    values: int
    ranks: int = 1
    delay: float = 0.0

    def __str__(self) -> str:
        where = f"{self.ranks} ranks" if self.ranks > 1 else "one process"
        late = f", {self.delay * 1e3:g} ms late" if self.delay else ""
        return f"{self.nodes} nodes, {self.values:,} values, {where}{late}"


FITTED = (
    Point(8, 20_000),
    Point(64, 20_000),
    Point(16, 160_000),
    Point(8, 20_000, 2),
    Point(16, 160_000, 2),
    Point(64, 20_000, 4),
    Point(16, 20_000, 16),
)
CHECKED = (
    Point(16, 40_000),
    Point(32, 40_000),
    Point(16, 80_000, 2),
    Point(64, 40_000, 2),
    Point(32, 40_000, 4),
    Point(16, 80_000, 8),
    Point(64, 40_000, 8),
    Point(64, 40_000, 16),
    Point(64, 40_000, 16, 0.002),
    Point(64, 40_000, 16, 0.01),
)


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield each checked point's error, then the model's predictions for more ranks; write both into a page.

    Raises InputError for a folder that cannot be written; ToolFailed when a run fails.
    """
    for option, least in ("cores", 1), ("rtt_us", 0), ("runs", 1):
        if not least <= (value := getattr(args, option)) < math.inf:
            must = f"at least {least}" if value < least else "finite"
            raise InputError(f"--{option.replace('_', '-')} {value}: must be {must}")
    page, pictures = args.output / PAGE, outputs(NAME, args.output)
    check_writable(page)
    cores = len(os.sched_getaffinity(0))
    fitted = [_measured(point, args.runs) for point in FITTED]
    loads = [_load(point, found, cores) for point, found in zip(FITTED, fitted, strict=True)]
    costs = Costs.fit(loads, [found.seconds for found in fitted], rank=rank_cost())
    rows: list[Sequence[object]] = []
    for point in CHECKED:
        found = _measured(point, args.runs)
        expected = costs.seconds(_load(point, found, cores))
        error = 100 * (expected / found.seconds - 1)
        rows.append((str(point), f"{found.seconds:.2f}", f"{expected:.2f}", f"{error:+.1f} %"))
        yield Result(str(point), abs(error), "% off", MAX_ERROR, note=f"{found.seconds:.2f} s")
    kinds = {
        "ring node, 8 lanes": (costs, max(loads, key=lambda load: load.nodes)),
        "GLM node, u280": _glm(costs),
    }
    figures: list[Figure] = []
    predicted: list[Sequence[object]] = []
    for kind, (own, unit) in kinds.items():
        figures.append(Figure(kind, kind, "machines", "times as fast as one process", log_y=True))
        for nodes in NODES:
            speeds = [_speed(own, unit, nodes, machines, args) for machines in MACHINES]
            predicted.append((kind, nodes, *(f"{speed:.1f} ({ranks})" for speed, ranks in speeds)))
            for machines, (speed, _) in zip(MACHINES, speeds, strict=True):
                result = figures[-1].add(f"{nodes:,} nodes", machines, speed)
                if nodes == NODES[-1]:
                    yield result
    figures[-1].note = f"{args.cores} cores a machine, {args.rtt_us:g} µs there and back between machines"
    lines = [
        *table("What was measured", ("run", "seconds", "model", "error"), rows),
        *table("What a part costs, µs", *_costs_table(kinds)),
        *table("Times as fast as one process (ranks)", ("node", "nodes", *_headings(args)), predicted),
    ]
    write_file(page, "\n".join(lines))
    write(figures, pictures)


def _costs_table(kinds: dict[str, tuple[Costs, Load]]) -> tuple[Sequence[str], list[Sequence[object]]]:
    names = ("a cycle of a node", "frame, alone", "frame, ranks", "meeting", "another rank", "exchange")
    values = [[getattr(costs, name) for name in Costs.__dataclass_fields__] for costs, _ in kinds.values()]
    rows: list[Sequence[object]] = [
        (kind, *(f"{1e6 * cost:.2f}" for cost in own)) for kind, own in zip(kinds, values, strict=True)
    ]
    return ("node", *names), rows


def _headings(args: argparse.Namespace) -> list[str]:
    return [f"{machines} × {args.cores} cores" for machines in MACHINES]


def _measured(point: Point, runs: int) -> Measured:
    """Time a point's run, in processes of its own. Raises ToolFailed."""
    numbers = (point.nodes, point.values, runs, point.ranks)
    command = python_module("fanin.sim.scale.point", *map(str, numbers))
    environment = {**os.environ, "FANIN_COSIM_DELAY": str(point.delay)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"{point}: has not ended within {_TIMEOUT:g} s") from None
    if done.returncode:
        raise ToolFailed(f"{point}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _load(point: Point, found: Measured, cores: int) -> Load:
    """Return the load of a run; a run in one process has no meetings."""
    return Load(
        point.nodes,
        found.cycles,
        found.frames,
        found.meetings,
        ranks=point.ranks,
        cores=cores,
        delay=point.delay,
    )


def _glm(costs: Costs) -> tuple[Costs, Load]:
    """Return the costs with those of a u280 node's cycle and of aggregated frames, and the node's load.

    They are measured in a training in one process; the cost of waking Python for a frame stays the same.
    """
    node = PRESETS["u280"]
    shape = TrainShape(node=node, workers=GLM_NODES, samples=512, columns=4096, batch=64)
    rng = np.random.default_rng(0)
    features = rng.integers(0, 1 << shape.precision, (shape.samples, shape.columns), dtype=np.uint8)
    labels = (rng.integers(0, 2, shape.samples) << node.frac).astype(np.int32)
    rate, cosim = fixed.learning_rate(0.5 / shape.batch), Cosim(node, workers=GLM_NODES, quiet=True)
    run = cosim.train(shape, features, labels, loss=Loss.LOGISTIC, rate=rate, epochs=4, models=False)
    raw = run.raw
    frames = sum(raw.frames.values())
    frame = raw.network_seconds / frames
    alone = frame + max(0.0, costs.frame_alone - costs.frame)
    cycle = (raw.seconds - frames * alone) / (raw.cycles * GLM_NODES)
    own = replace(costs, node_cycle=cycle, frame=frame, frame_alone=alone)
    return own, Load(GLM_NODES, raw.cycles, frames, meetings=0)


def _speed(costs: Costs, unit: Load, nodes: int, machines: int, args: argparse.Namespace) -> tuple[float, int]:
    """Return the best speed-up of ``nodes`` nodes on ``machines`` machines, and its number of ranks.

    ``unit`` says how many frames a node sends in a cycle.
    """
    meetings = unit.cycles // _WINDOW
    frames = round(unit.frames * nodes / unit.nodes)
    whole = Load(nodes, unit.cycles, frames, meetings)
    speeds = [(1.0, 1)]
    most = min(nodes, machines * args.cores)
    for ranks in sorted({*(1 << bit for bit in range(1, most.bit_length())), most} - {1}):
        used = min(machines, ranks)
        delay = args.rtt_us * 1e-6 if used > 1 else 0.0
        load = replace(whole, ranks=ranks, machines=used, cores=args.cores, delay=delay)
        speeds.append((costs.speed_up(load), ranks))
    return max(speeds)
