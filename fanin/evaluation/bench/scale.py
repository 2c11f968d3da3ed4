"""Benchmark of simulations on several ranks: timed runs, and a model that predicts runs on more ranks.

A *rank* is a process that simulates a part of the nodes. The ranks exchange frames at *meetings*. The model's
costs are fitted to some points, and checked at other points.
"""

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
from fanin.link import LinkConfig
from fanin.runs.output import check_writable
from fanin.sim.cosim.clock import Clock, period_of
from fanin.sim.cosim.meeting import window
from fanin.sim.glm.cosim import Cosim
from fanin.sim.network import SWITCH_NS, min_trip_ps
from fanin.sim.scale.model import Costs, Load
from fanin.sim.scale.point import RunMeasurement, rank_cost

PAGE, NAME = "scale.md", "scale"
MAX_ERROR = 10.0  # % between predicted and measured time
NODES = (1, 4, 16, 64, 256, 1024)
MACHINES = (1, 4, 16, 64)
GLM_NODES = 2
_TIMEOUT_SECONDS = 1800.0
#: cycles between two meetings of the ranks
_WINDOW_CYCLES = window(min_trip_ps(LinkConfig(), SWITCH_NS), Clock(period_of(CLOCK_MHZ)))


class Point(NamedTuple):
    """Run to time.

    - ``nodes``: ring nodes.
    - ``values``: values of each node's vector.
    - ``ranks``: processes.
    - ``delay``: added delay of each meeting, in s.
    """

    nodes: int
    values: int
    ranks: int = 1
    delay: float = 0.0

    def __str__(self) -> str:
        processes = f"{self.ranks} ranks" if self.ranks > 1 else "one process"
        delay = f", {self.delay * 1e3:g} ms late" if self.delay else ""
        return f"{self.nodes} nodes, {self.values:,} values, {processes}{delay}"


#: runs to which the model's costs are fitted
FITTED_POINTS = (
    Point(8, 20_000),
    Point(64, 20_000),
    Point(16, 160_000),
    Point(8, 20_000, 2),
    Point(16, 160_000, 2),
    Point(64, 20_000, 4),
    Point(16, 20_000, 16),
)
#: runs with which the model's predictions are compared
CHECKED_POINTS = (
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
    for option, minimum in ("cores", 1), ("rtt_us", 0), ("runs", 1):
        if not minimum <= (value := getattr(args, option)) < math.inf:
            requirement = f"at least {minimum}" if value < minimum else "finite"
            raise InputError(f"--{option.replace('_', '-')} {value}: must be {requirement}")
    page, pictures = args.output / PAGE, outputs(NAME, args.output)
    check_writable(page)
    cores = len(os.sched_getaffinity(0))
    fitted_runs = [_time_run(point, args.runs) for point in FITTED_POINTS]
    loads = [_load(point, run, cores) for point, run in zip(FITTED_POINTS, fitted_runs, strict=True)]
    costs = Costs.fit(loads, [run.seconds for run in fitted_runs], rank=rank_cost())
    rows: list[Sequence[object]] = []
    for point in CHECKED_POINTS:
        run = _time_run(point, args.runs)
        expected = costs.seconds(_load(point, run, cores))
        error = 100 * (expected / run.seconds - 1)
        rows.append((str(point), f"{run.seconds:.2f}", f"{expected:.2f}", f"{error:+.1f} %"))
        yield Result(str(point), abs(error), "% off", MAX_ERROR, note=f"{run.seconds:.2f} s")
    costs_and_load = {
        "ring node, 8 lanes": (costs, max(loads, key=lambda load: load.nodes)),
        "GLM node, u280": _glm_costs_and_load(costs),
    }
    figures: list[Figure] = []
    predicted_rows: list[Sequence[object]] = []
    for kind, (kind_costs, node_load) in costs_and_load.items():
        figures.append(Figure(kind, kind, "machines", "times as fast as one process", log_y=True))
        for nodes in NODES:
            speeds = [_best_speed_up(kind_costs, node_load, nodes, machines, args) for machines in MACHINES]
            predicted_rows.append((kind, nodes, *(f"{speed:.1f} ({ranks})" for speed, ranks in speeds)))
            for machines, (speed, _) in zip(MACHINES, speeds, strict=True):
                result = figures[-1].add(f"{nodes:,} nodes", machines, speed)
                if nodes == NODES[-1]:
                    yield result
    figures[-1].note = f"{args.cores} cores a machine, {args.rtt_us:g} µs there and back between machines"
    lines = [
        *table("What was measured", ("run", "seconds", "model", "error"), rows),
        *table("What a part costs, µs", *_costs_table(costs_and_load)),
        *table("Times as fast as one process (ranks)", ("node", "nodes", *_headings(args)), predicted_rows),
    ]
    write_file(page, "\n".join(lines))
    write(figures, pictures)


def _costs_table(costs_and_load: dict[str, tuple[Costs, Load]]) -> tuple[Sequence[str], list[Sequence[object]]]:
    """Return columns and rows of a table of the fitted costs, in µs."""
    names = ("a cycle of a node", "frame, alone", "frame, ranks", "meeting", "another rank", "exchange")
    values = [
        [getattr(costs, name) for name in Costs.__dataclass_fields__] for costs, _ in costs_and_load.values()
    ]
    rows: list[Sequence[object]] = [
        (kind, *(f"{1e6 * cost:.2f}" for cost in kind_values))
        for kind, kind_values in zip(costs_and_load, values, strict=True)
    ]
    return ("node", *names), rows


def _headings(args: argparse.Namespace) -> list[str]:
    return [f"{machines} × {args.cores} cores" for machines in MACHINES]


def _time_run(point: Point, runs: int) -> RunMeasurement:
    """Time the fastest of ``runs`` runs of a point, in separate processes. Raises ToolFailed."""
    numbers = (point.nodes, point.values, runs, point.ranks)
    command = python_module("fanin.sim.scale.point", *map(str, numbers))
    environment = {**os.environ, "FANIN_COSIM_DELAY": str(point.delay)}
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"{point}: has not ended within {_TIMEOUT_SECONDS:g} s") from None
    if process.returncode:
        raise ToolFailed(f"{point}: {(process.stderr.strip().splitlines() or ['no message'])[-1]}")
    return RunMeasurement(**json.loads(process.stdout.splitlines()[-1]))


def _load(point: Point, run: RunMeasurement, cores: int) -> Load:
    """Return the load of a run; a run in one process has no meetings."""
    return Load(
        point.nodes,
        run.cycles,
        run.frames,
        run.meetings,
        ranks=point.ranks,
        cores=cores,
        delay=point.delay,
    )


def _glm_costs_and_load(costs: Costs) -> tuple[Costs, Load]:
    """Return costs and load of GLM training, measured on u280 nodes in one process.

    Cycle and frame costs are those of the training. The cost of waking Python for a frame, and costs between
    ranks, are those of ``costs``.
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
    frame_alone = frame + max(0.0, costs.frame_alone - costs.frame)
    cycle = (raw.seconds - frames * frame_alone) / (raw.cycles * GLM_NODES)
    glm_costs = replace(costs, node_cycle=cycle, frame=frame, frame_alone=frame_alone)
    return glm_costs, Load(GLM_NODES, raw.cycles, frames, meetings=0)


def _best_speed_up(
    costs: Costs, node_load: Load, nodes: int, machines: int, args: argparse.Namespace
) -> tuple[float, int]:
    """Return the best speed-up of ``nodes`` nodes on ``machines`` machines, and its number of ranks.

    ``node_load``: load from which the frames per node and cycle are taken.
    """
    meetings = node_load.cycles // _WINDOW_CYCLES
    frames = round(node_load.frames * nodes / node_load.nodes)
    single_process = Load(nodes, node_load.cycles, frames, meetings)
    speeds = [(1.0, 1)]
    max_ranks = min(nodes, machines * args.cores)
    for ranks in sorted({*(1 << bit for bit in range(1, max_ranks.bit_length())), max_ranks} - {1}):
        used_machines = min(machines, ranks)
        delay = args.rtt_us * 1e-6 if used_machines > 1 else 0.0
        load = replace(single_process, ranks=ranks, machines=used_machines, cores=args.cores, delay=delay)
        speeds.append((costs.speed_up(load), ranks))
    return max(speeds)
