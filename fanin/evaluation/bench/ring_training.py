"""Benchmark of training iterations on the ring's RTL, compared with AI Smart NIC's model (section IV-C).

The paper's shape, 20 layers and its mini-batches, is scaled down in width. The times of computation and
reduction are both proportional to the weights, so their ratio stays. The model has the same worker, and α and β
of the frame format; nothing is fitted to the RTL. Symbols of the paper:

- α: the payload's share of the time on the link.
- β: the codec's compression ratio.
- T_U: time of a layer's weight update on the worker; 0 for the paper's worker.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fanin.base.limits import CLOCK_MHZ
from fanin.codec.facts import Bfp, CodecConfig
from fanin.evaluation.bench import smart_nic_drawing as drawing
from fanin.evaluation.bench.result import Result, number
from fanin.evaluation.bench.smart_nic_figures import (
    NAIVE,
    OVERLAPPED,
    SMART,
    SMART_BFP,
    TRACE_LAYERS,
    RunTimes,
)
from fanin.evaluation.models import smart_nic
from fanin.evaluation.models import smart_nic_paper as paper
from fanin.evaluation.models.smart_nic import NIC, WORKER, SmartNic, Worker
from fanin.evaluation.origins.graph import identifier
from fanin.link import LinkConfig
from fanin.ring.facts import PRESETS, RingConfig
from fanin.sim.ring import timeline
from fanin.sim.ring.model import World
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import Overlap, Schedule, Times
from fanin.sim.ring.sums import Sums
from fanin.sim.ring.time import RingTime
from fanin.sim.ring.timed import Timed
from fanin.sim.ring.timeline import makespan
from fanin.sim.ring.train_cosim import RingTrainingCosim

NODES = (2, 3, 4, 5, 6)
LAYERS = len(paper.WIDTHS)
WIDTH = 512
MAX_DEVIATION = 3.0  # %, the paper's claim for its model
LINK = LinkConfig(gbps=paper.ETHERNET / 1e9)
CODECS: dict[str, CodecConfig | None] = {SMART: None, SMART_BFP: Bfp()}
DEFAULT = WorkerProfile()


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An iteration of training.

    - ``nodes``: number of nodes.
    - ``batch``: samples of a node.
    - ``width``: a layer has ``width`` × ``width`` weights.
    - ``layers``: number of layers.
    - ``profile``: speed of the worker.
    """

    nodes: int
    batch: int
    width: int = WIDTH
    layers: int = LAYERS
    profile: WorkerProfile

    @property
    def counts(self) -> list[int]:
        """Values of each layer."""
        return [self.width**2] * self.layers

    @property
    def to_paper(self) -> float:
        """Factor from a time at ``width`` to the time at the paper's width."""
        return (paper.WIDTHS[0] / self.width) ** 2


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures; draw the paper's into ``args.output``. Raises InputError."""
    paths = drawing.outputs(args.output)
    run_times = RunTimes()
    if args.part in (None, "scaled"):
        yield from _on_host_cores(run_times)
        yield from _scaled(run_times)
        drawing.write(paths, paper.fitted(), run_times)
    if args.part in (None, "whole"):
        yield from _full_width()


def _scaled(run_times: RunTimes) -> Iterator[Result]:
    """Yield all node counts, mini-batches and codecs with the paper's worker, then one mini-batch with T_U."""
    for series, codec in CODECS.items():
        config = replace(PRESETS["prototype"], codec=codec)
        for nodes in NODES:
            cosim = RingTrainingCosim(config, nodes=nodes)
            for batch in paper.BATCHES:
                shape = Shape(nodes=nodes, batch=batch, profile=_worker(batch))
                seconds, _ = _run(cosim, shape)
                run_times.seconds[batch, nodes, series] = seconds * shape.to_paper
                yield from _figures(f"{series}, {nodes} nodes, B = {batch}", cosim, shape, seconds)
        shape = Shape(nodes=nodes, batch=448, profile=DEFAULT)
        seconds, _ = _run(cosim, shape)
        yield from _figures(f"{series}, {nodes} nodes, B = 448, with T_U", cosim, shape, seconds)
        if codec is None:
            shape = Shape(nodes=nodes, batch=448, layers=TRACE_LAYERS, profile=_worker(448))
            _, times = _run(cosim, shape)
            run_times.trace = _spans(times, shape.to_paper)


def _on_host_cores(run_times: RunTimes) -> Iterator[Result]:
    """Yield figure 2a: hosts reduce gradients themselves, in the time model alone, without RTL or data."""
    batch, nodes, inputs = 1792, paper.PROTOTYPE, paper.fitted()
    cores, worker = inputs.cores(), _worker(batch)
    for bar, spans in (
        (NAIVE, paper.naive(inputs, batch, nodes)),
        (OVERLAPPED, paper.conventional(inputs, batch, nodes)),
    ):
        is_naive = bar == NAIVE
        timed = Timed(
            counts=[width**2 for width in paper.WIDTHS],
            nodes=nodes,
            batch=batch,
            profile=worker if is_naive else replace(worker, slowdown=cores.slowdown),
            schedule=Schedule(Overlap.NONE) if is_naive else Schedule(outstanding=LAYERS),
        )
        seconds = functools.partial(cores.seconds, nodes=nodes, single_thread=is_naive)
        world = World(timed, nodes, Sums(lambda gradients: gradients[0], nodes), seconds)
        run_times.cores[bar] = max(times.steps[-1] for times in world.run())
        yield from _time_and_deviation(
            f"regular NICs, {bar}, 6 nodes, B = {batch}", run_times.cores[bar], makespan(spans)
        )


def _full_width() -> Iterator[Result]:
    """Yield one iteration at the paper's width, on three nodes."""
    config = PRESETS["prototype"]
    shape = Shape(nodes=3, batch=448, width=paper.WIDTHS[0], profile=_worker(448))
    cosim = RingTrainingCosim(config, nodes=shape.nodes)
    seconds, _ = _run(cosim, shape)
    yield from _figures(f"{SMART}, 3 nodes, B = 448", cosim, shape, seconds)


def _worker(batch: int) -> WorkerProfile:
    """Return the paper's worker, whose update takes no time (docs/systems/gradient-training.md)."""
    return WorkerProfile(flops=paper.fitted().worker(batch).flops, memory_bandwidth=float("inf"))


def _run(cosim: RingTrainingCosim, shape: Shape) -> tuple[float, Times]:
    """Run an iteration and check each sum; return the slowest node's time in s, and the first node's times."""
    learners = functools.partial(
        Timed,
        counts=shape.counts,
        nodes=shape.nodes,
        batch=shape.batch,
        profile=shape.profile,
        schedule=Schedule(),
    )
    run, _ = cosim.run(learners, shape.counts, link=LINK, pcie=shape.profile.pcie)
    return max(times.steps[-1] for times in run.times), run.times[0]


def model(config: RingConfig, shape: Shape) -> float:
    """Return the time of an iteration in s by the paper's formula, with the frames' α and β."""
    time = RingTime(config=config, nodes=shape.nodes, count=shape.counts[0], link=LINK)
    nic = SmartNic(
        ethernet=LINK.gbps * 1e9,
        pcie=2 * shape.profile.pcie,  # both directions together; the profile has one direction
        adds=config.lanes * CLOCK_MHZ * 1e6,
        ratio=time.ratio,
        utilisation=time.utilisation,
    )
    worker = Worker(shape.profile.flops, shape.profile.update(1))
    widths = [shape.width] * shape.layers
    return smart_nic.total(smart_nic.layers(widths, shape.batch, worker, nic, shape.nodes))


def _figures(name: str, cosim: RingTrainingCosim, shape: Shape, seconds: float) -> Iterator[Result]:
    """Yield the time of an iteration in RTL, and its deviation from the paper's model."""
    yield from _time_and_deviation(
        f"{name}, {shape.layers} × {shape.width}²", seconds, model(cosim.config, shape)
    )


def _time_and_deviation(name: str, seconds: float, expected: float) -> Iterator[Result]:
    """Yield a time, and its deviation from the paper's model."""
    note = f"the model: {number(1e3 * expected)}"
    yield Result(f"{name}: iteration", 1e3 * seconds, "ms", note=note)
    deviation = 100 * (seconds / expected - 1)
    note, figure_id = f"{deviation:+.2f} %", identifier("ring_training", name, "off")
    yield Result(f"{name}: off the model", abs(deviation), "%", MAX_DEVIATION, note=note, id=figure_id)


def _spans(times: Times, scale: float) -> list[timeline.Span]:
    """Return a host's spans in figure 3b, in s at the paper's width."""
    return [
        timeline.Span(
            timeline.Task(f"{span.kind}{span.layer}", NIC if span.kind == "AR" else WORKER, 0.0),
            scale * span.begin,
            scale * span.end,
        )
        for span in times.spans
    ]
