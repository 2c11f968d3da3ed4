"""Benchmark of NADA's tables I and III: two convolutions of listing 1, built for the paper's throughput."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from fanin.cnn.layers.layer import Layer, Storage
from fanin.evaluation.bench.result import Result
from fanin.evaluation.origins.graph import identifier
from fanin.planner.cluster import Part, load_cluster
from fanin.planner.model.load import load_model
from fanin.planner.search.choices import Choice, pareto_front

MODEL, CLUSTER = "listing1", "arria10x4"
TARGET = Fraction("3906.25")  # frames a second, table I's target throughput
LAYERS = {"φ": "conv1", "ψ": "conv5"}
#: Table I's induced delay and actual throughput, table III's estimates.
PAPER: dict[str, Sequence[str]] = {
    "φ": ("0.23", "3906.25", "32", "272.9; built: 518.4"),
    "ψ": ("0.91", "4069.01", "38", "1446.6; built: 1659.5"),
}


def at_target(layer: Layer, part: Part) -> Choice:
    """Return the choice with the fewest DSP blocks that reaches table I's throughput on ``part``."""
    max_cycles = part.clock / TARGET
    candidates = [
        choice
        for choice in pareto_front(layer, part)
        if choice.cost.cycles <= max_cycles and choice.storage is Storage.CHIP
    ]
    return min(candidates, key=lambda choice: choice.cost.dsp)


def measure() -> Iterator[Result]:
    """Yield the figures; seconds."""
    model, part = load_model(MODEL), load_cluster(CLUSTER).devices[0].part
    for letter, name in LAYERS.items():
        layer = model.nodes[model.by_name[name]].layer
        choice = at_target(layer, part)
        figures = (
            ("induced delay", float(layer.delay), "frames"),
            ("throughput", float(part.clock / Fraction(choice.cost.cycles)), "frames/s"),
            ("DSPs", choice.cost.dsp, "DSPs"),
            ("RAM", choice.cost.ram_bits / 1e3, "Kb"),
        )
        for (quantity, value, unit), paper in zip(figures, PAPER[letter], strict=True):
            name, figure_id = f"listing 1: {letter}, {quantity}", identifier("plan.listing_1", letter, quantity)
            yield Result(name, value, unit, note=f"the paper: {paper}", id=figure_id)
