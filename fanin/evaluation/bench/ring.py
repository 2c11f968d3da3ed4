"""Benchmark of the ring all-reduce NIC: the papers' models against their figures, then fanin's ring in RTL.

An input of AI Smart NIC's model is the paper's or fitted to a published figure. The model's predictions are
compared with the other figures. INCEPTIONN's exchange times follow.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fanin.evaluation.bench import ring_groups, ring_nic, ring_rtl
from fanin.evaluation.bench import smart_nic_drawing as drawing
from fanin.evaluation.bench import smart_nic_figures as figures
from fanin.evaluation.bench.result import Result, number
from fanin.evaluation.models import exchange_cost
from fanin.evaluation.models import smart_nic_paper as paper
from fanin.evaluation.models.smart_nic_paper import BFP16, Fact, Inputs
from fanin.evaluation.origins.graph import identifier
from fanin.sim.ring.timeline import makespan

MAX_DEVIATION = 10.0  # % between a predicted and a published figure
#: Facts beyond MAX_DEVIATION, which docs/systems/gradient-training.md explains.
KNOWN_MISSES = {"B = 1792, 6 nodes: exposed, naive over overlapped"}


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield inputs, facts and curves; draw the paper's figures into ``args.output``. Raises InputError."""
    if args.rates:
        yield from ring_rtl.measure_point(ring_rtl.CODEC_RATES)
        return
    paths = drawing.outputs(args.output)
    inputs = paper.fitted()
    yield from smart_nic(inputs)
    drawing.write(paths, inputs, figures.RunTimes())
    yield from exchange_times()
    if not args.models:
        yield from ring_rtl.measure()
        yield from ring_rtl.measure_point(ring_rtl.CODEC_RATES)
        yield from ring_groups.measure()
        yield from ring_nic.measure()


def smart_nic(inputs: Inputs) -> Iterator[Result]:
    """Yield AI Smart NIC's inputs, facts and curves, by its model."""
    yield from _inputs(inputs)
    yield from (_fact(fact, inputs) for fact in paper.FACTS)
    for batch in paper.BATCHES:
        yield from _curves(batch, inputs)
    yield from _parts("figure 2a", figures.figure_2a(inputs))
    yield from _parts("figure 4a", figures.figure_4a(inputs))
    yield from _scaling("figure 2b", figures.figure_2b(inputs), "speed-up")
    for batch in paper.BATCHES:
        yield from _scaling("figure 4b", figures.relative_speedups(inputs, batch), "× conventional NICs", batch)


def _inputs(inputs: Inputs) -> Iterator[Result]:
    for batch, flops in zip(paper.BATCHES, inputs.flops, strict=True):
        yield Result(f"P_Worker at B = {batch}", flops / 1e12, "TFLOPS", note="fitted; peak of 28 cores: 4.3")
    yield Result("P_FPGA", inputs.adds / 1e9, "GFLOPS", note=f"fitted: 8 lanes at {inputs.adds / 8e6:.0f} MHz")
    yield Result("conventional NIC: α", 1e6 * inputs.latency, "µs", note="fitted: a step of MPI's ring")
    yield Result("conventional NIC: β", 1e9 * paper.BASELINE_BYTE, "ns/byte", note="the paper: 100 Gb/s")
    yield Result("conventional NIC: γ, two threads", 1e9 * inputs.add, "ns/byte", note="fitted")
    yield Result("conventional NIC: γ, one thread", 1e9 * inputs.lone_add, "ns/byte", note="fitted")
    yield Result("backward pass beside two threads", 11, "% slower", note="the paper")
    yield Result("smart NIC: link", paper.ETHERNET / 1e9, "Gb/s", note="the paper")
    yield Result("smart NIC: BFP16", BFP16, "×", note="the paper: 136 bits for 512", id="ring.bfp16.ratio")
    yield Result("smart NIC: PCIe", paper.PCIE / 1e9, "Gb/s", note="Gen3 x8 both ways, 81 % of it payload")
    yield Result("T_U", paper.UPDATE, "s", note="no time is left for it by the published figures")


def _fact(fact: Fact, inputs: Inputs) -> Result:
    """Return the value of a fitted fact, or the deviation of a predicted fact from the published value."""
    value = fact.model(inputs)
    if fact.fitted:
        note, name = f"the paper: {number(fact.published)}; fitted", f"ring.fact.{fact.id}.fitted"
        return Result(fact.name, value, fact.unit, note=note, id=name)
    deviation = abs(100 * (value / fact.published - 1))
    note = f"{number(value)} {fact.unit}, the paper: {number(fact.published)}; predicted"
    if fact.name in KNOWN_MISSES:
        return Result(fact.name, deviation, "% off", note=f"{note}, not met")
    return Result(fact.name, deviation, "% off", MAX_DEVIATION, note=note)


def _curves(batch: int, inputs: Inputs) -> Iterator[Result]:
    for series, points in figures.figure_4b(inputs, batch).items():
        if series == figures.IDEAL:
            continue
        for nodes, speedup in points:
            spans = figures.iteration(inputs, batch, int(nodes), series)
            note = f"speed-up {number(speedup)}"
            name = f"B = {batch}, {nodes} nodes, {series}"
            figure_id = identifier("ring.iteration", f"b {batch}", f"nodes {nodes}", series)
            yield Result(name, 1e3 * makespan(spans), "ms", note=note, id=figure_id)


def _scaling(figure: str, curves: figures.Curves, unit: str, batch: int = 0) -> Iterator[Result]:
    """Yield the points of a figure. ``batch``: mini-batch of the curves; 0: none."""
    text, curve = (f"{figure}: B = {batch}", f"B = {batch}, ") if batch else (figure, "")
    id_prefix = identifier("ring", figure, f"b {batch}") if batch else identifier("ring", figure)
    for name, points in curves.items():
        for nodes, value in points:
            figure_id = identifier(id_prefix, name, f"nodes {nodes:g}")
            result_name = f"{text}: {name}, {nodes:g} nodes"
            yield Result(result_name, value, unit, id=figure_id, curve=f"{curve}{name}", x=nodes)


def _parts(figure: str, bars: figures.Bars) -> Iterator[Result]:
    for bar, parts in bars.items():
        for part, milliseconds in parts.items():
            yield Result(
                f"{figure}: {bar}, {part}", milliseconds, "ms", id=identifier("ring", figure, bar, part)
            )


def exchange_times() -> Iterator[Result]:
    """Yield INCEPTIONN's analytic exchange times; of figure 15, only the curves."""
    for comparison in exchange_cost.comparisons():
        deviation = 100 * (comparison.model / comparison.published - 1)
        note = f"the paper: {number(comparison.published)}, " + (
            "fitted" if comparison.fitted else f"{deviation:+.1f} %"
        )
        scheme = f"inceptionn.model.{comparison.id}"
        yield Result(f"INCEPTIONN: {comparison.name}", comparison.model, comparison.unit, note=note, id=scheme)
    for workers in (4, 6, 8):
        for scheme, value in zip(("WA", "INC"), exchange_cost.scaling(workers), strict=True):
            text, point = f"INCEPTIONN, figure 15: {scheme}, {workers} workers", f"workers {workers}"
            figure_id = identifier("inceptionn.figure_15", scheme, point)
            yield Result(text, value, "× WA of 4", id=figure_id, curve=scheme, x=workers)
