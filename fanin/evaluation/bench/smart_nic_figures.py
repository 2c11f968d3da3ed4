"""AI Smart NIC's figures 2a, 2b, 3b, 4a and 4b: the model of section IV-C, compared with the paper's values.

The paper's figures have no numbers, so the values are taken from its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fanin.evaluation.models import smart_nic
from fanin.evaluation.models import smart_nic_paper as paper
from fanin.evaluation.models.smart_nic_paper import BFP16, Inputs
from fanin.sim.ring.collectives import Scheme, best, binomial, rabenseifner, ring
from fanin.sim.ring.timeline import Span, makespan

NODES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
NAIVE, OVERLAPPED = "naive", "overlapped"
CONVENTIONAL, SMART, SMART_BFP, IDEAL = "conventional NIC", "smart NIC", "smart NIC with BFP", "ideal"
SERIES: dict[str, float | None] = {SMART_BFP: BFP16, SMART: 1.0, CONVENTIONAL: None}
SCHEMES: dict[str, Scheme] = {
    "default": best,
    "ring": ring,
    "Rabenseifner": rabenseifner,
    "binomial gather, scatter": binomial,
}
SCHEME_NODES = (1, 2, 3, 4, 6, 8, 10, 12)

FORWARD, BACKWARD, SLOWER, EXPOSED = "forward", "backward", "slower backward", "exposed all-reduce"
TRACE_LAYERS = 6  # layers in figure 3b; the paper's figure has L

Bars = dict[str, dict[str, float]]  # milliseconds of each part, by bar
Curves = Mapping[str, Sequence[tuple[float, float]]]


@dataclass
class RunTimes:
    """Measured times of training runs, for the figures.

    - ``seconds``: time of an iteration in RTL, in s at the paper's width, by mini-batch, nodes and series.
    - ``cores``: time with reduction by hosts, without RTL, in s at the paper's width, by bar of figure 2a.
    - ``trace``: trace of figure 3b's iteration.
    """

    seconds: dict[tuple[int, int, str], float] = field(default_factory=dict)
    cores: dict[str, float] = field(default_factory=dict)
    trace: Sequence[Span] = ()


def iteration(inputs: Inputs, batch: int, nodes: int, series: str) -> list[Span]:
    """Return the model's iteration of a series."""
    ratio = SERIES[series]
    if ratio is None:
        return paper.conventional(inputs, batch, nodes)
    return paper.smart(inputs, batch, nodes, ratio)


def trace(inputs: Inputs) -> list[Span]:
    """Return figure 3b: an iteration of few layers on six nodes, without a codec."""
    nic, worker = inputs.nic(), inputs.worker(448)
    times = smart_nic.layers(paper.WIDTHS[:TRACE_LAYERS], 448, worker, nic, paper.PROTOTYPE)
    return smart_nic.trace(times)


def parts(spans: Sequence[Span], backward: float) -> dict[str, float]:
    """Return the parts of an iteration, in ms. ``backward``: time of the backward pass with all cores, in s."""
    forward = sum(span.task.seconds for span in spans if span.task.name.startswith("F"))
    slower = smart_nic.backward(spans) - backward
    seconds = {FORWARD: forward, BACKWARD: backward, SLOWER: slower, EXPOSED: smart_nic.exposed(spans)}
    return {part: 1e3 * value for part, value in seconds.items()}


def figure_2a(inputs: Inputs) -> Bars:
    """Return figure 2a: regular NICs without and with overlap, and a smart NIC; mini-batch 1792, 6 nodes."""
    batch, nodes = 1792, paper.PROTOTYPE
    backward_seconds = smart_nic.backward(paper.smart(inputs, batch, 1))
    bars = {
        NAIVE: paper.naive(inputs, batch, nodes),
        OVERLAPPED: paper.conventional(inputs, batch, nodes),
        SMART: paper.smart(inputs, batch, nodes),
    }
    return {name: parts(spans, backward_seconds) for name, spans in bars.items()}


def measured_2a(run_times: RunTimes) -> dict[str, float]:
    """Return the measured bars of figure 2a, in ms."""
    rtl = run_times.seconds.get((1792, paper.PROTOTYPE, SMART))
    seconds = run_times.cores | ({SMART: rtl} if rtl is not None else {})
    return {bar: 1e3 * value for bar, value in seconds.items()}


def figure_2b(inputs: Inputs) -> Curves:
    """Return figure 2b: four schemes of MPI with overlap, mini-batch 1792."""
    return {
        name: [
            (n, paper.speedup(inputs, 1792, n, paper.conventional(inputs, 1792, n, scheme)))
            for n in SCHEME_NODES
        ]
        for name, scheme in SCHEMES.items()
    } | {IDEAL: [(n, n) for n in SCHEME_NODES]}


def figure_4a(inputs: Inputs) -> Bars:
    """Return figure 4a: baseline and smart NICs, mini-batch 448, 6 nodes."""
    batch, nodes = 448, paper.PROTOTYPE
    backward_seconds = smart_nic.backward(paper.smart(inputs, batch, 1))
    return {
        name: parts(iteration(inputs, batch, nodes, name), backward_seconds)
        for name in (CONVENTIONAL, SMART, SMART_BFP)
    }


def figure_4b(inputs: Inputs, batch: int) -> Curves:
    """Return figure 4b: speed-up over one node, by number of nodes."""
    return {
        name: [(n, paper.speedup(inputs, batch, n, iteration(inputs, batch, n, name))) for n in NODES]
        for name in SERIES
    } | {IDEAL: [(n, n) for n in NODES]}


def relative_speedups(inputs: Inputs, batch: int) -> Curves:
    """Return the speed-ups over conventional NICs by number of nodes, as the paper's text has figure 4b."""
    speedups = figure_4b(inputs, batch)
    base_speedups = dict(speedups[CONVENTIONAL])
    return {name: [(n, value / base_speedups[n]) for n, value in speedups[name]] for name in (SMART, SMART_BFP)}


def markers(inputs: Inputs, run_times: RunTimes, batch: int) -> Curves:
    """Return the speed-ups of the RTL's iterations, by series."""
    single_seconds = makespan(paper.smart(inputs, batch, 1))
    curves: dict[str, list[tuple[float, float]]] = {}
    for (run_batch, nodes, series), seconds in sorted(run_times.seconds.items()):
        if run_batch == batch:
            curves.setdefault(series, []).append((nodes, nodes * single_seconds / seconds))
    return curves


def notes_2a(bars: Bars) -> dict[str, str]:
    """Return the notes above the bars of figure 2a: the model's figures, and the paper's."""
    total = {name: sum(values.values()) for name, values in bars.items()}
    naive, overlapped = bars[NAIVE], bars[OVERLAPPED]
    return {
        NAIVE: f"{100 * naive[EXPOSED] / total[NAIVE]:.0f} % exposed (paper: 51 %)",
        OVERLAPPED: f"{total[NAIVE] / total[OVERLAPPED]:.2f}× faster (paper: 1.85×)\n"
        f"backward +{100 * overlapped[SLOWER] / overlapped[BACKWARD]:.0f} % (paper: 11 %)\n"
        f"exposed 1/{naive[EXPOSED] / overlapped[EXPOSED]:.0f} (paper: 1/50)",
    }


def notes_4a(bars: Bars) -> dict[str, str]:
    """Return the notes above the bars of figure 4a: savings of the model, and of the paper."""
    paper_savings: Mapping[str, tuple[int, int]] = {SMART: (18, 37), SMART_BFP: (40, 95)}
    base = bars[CONVENTIONAL]
    notes = {}
    for name, (paper_time, paper_exposed) in paper_savings.items():
        time_saving = 100 * (1 - sum(bars[name].values()) / sum(base.values()))
        exposed_saving = 100 * (1 - bars[name][EXPOSED] / base[EXPOSED])
        notes[name] = (
            f"time −{time_saving:.0f} % (paper: {paper_time} %)\n"
            f"exposed −{exposed_saving:.0f} % (paper: {paper_exposed} %)"
        )
    return notes


def notes_4b(curves: Curves, batch: int) -> list[tuple[float, float, str]]:
    """Return notes at the largest node count: speed-up over conventional NICs, and the paper's value."""
    published = {448: {SMART_BFP: 2.5, SMART: 1.8}, 1792: {SMART: 1.4}}[batch]
    base = dict(curves[CONVENTIONAL])[paper.LARGE]
    ends = {name: dict(curves[name])[paper.LARGE] for name in published}
    return [(paper.LARGE, end, f"{end / base:.1f}× (paper: {published[name]}×)") for name, end in ends.items()]


def values(inputs: Inputs, run_times: RunTimes) -> dict[str, Any]:
    """Return all drawn values for a JSON file: times in ms, curves as points (nodes, speed-up)."""
    return {
        "2a": figure_2a(inputs),
        "2b": figure_2b(inputs),
        "3b": {"model": _milliseconds(trace(inputs)), "RTL": _milliseconds(run_times.trace)},
        "4a": figure_4a(inputs),
        "4b": {f"B = {batch}": figure_4b(inputs, batch) for batch in paper.BATCHES},
        "4b, RTL": {f"B = {batch}": markers(inputs, run_times, batch) for batch in paper.BATCHES},
    }


def _milliseconds(spans: Sequence[Span]) -> dict[str, list[float]]:
    return {span.task.name: [1e3 * span.begin, 1e3 * span.end] for span in spans}
