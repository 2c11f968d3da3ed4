"""Choices of parallelism and storage that are not dominated by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fanin.cnn.layers.layer import Cost, Layer, Parallelism, Storage
from fanin.cnn.layers.links import NO_CONTEXT, GraphContext
from fanin.cnn.layers.logic import device_luts
from fanin.planner.cluster import Part


@dataclass(frozen=True)
class Choice:
    """One way to build a layer on a part, with its cost there."""

    parallelism: Parallelism
    storage: Storage
    cost: Cost


def constrained(cost: Cost, part: Part) -> tuple[int, ...]:
    """Return the costs that a part limits, in the order DSPs, LUTs, RAM, DRAM bits read and written.

    RAM is limited in bits, in blocks by kind, or in both.
    """
    luts = (cost.luts,) if part.luts is not None else ()
    ram = (cost.ram_bits,) if part.ram_bits is not None else ()
    blocks = cost.ram_blocks if part.ram_blocks is not None else ()
    return (cost.dsp, *luts, *ram, *blocks, cost.dram_read, cost.dram_write)


@cache
def connection_takes(part: Part) -> tuple[int, ...]:
    """Return the cost of a connection in the order of ``constrained``."""
    luts = device_luts(part.family, 1) - device_luts(part.family, 0)
    return constrained(Cost(0, 0, luts, 0, (0,) * len(part.family.ram), 0, 0), part)


@cache
def all_choices(layer: Layer, part: Part, context: GraphContext = NO_CONTEXT) -> tuple[Choice, ...]:
    """Return every choice that alone fits the part, at any throughput; fast ones first."""
    found = [
        Choice(parallelism, storage, context.cost(layer, parallelism, storage, part.family))
        for parallelism in layer.parallelisms()
        for storage in layer.storages
    ]
    fitting = [choice for choice in found if not exceeded(choice.cost, part)]
    return tuple(sorted(fitting, key=lambda choice: (choice.cost.cycles, constrained(choice.cost, part))))


def exceeded(cost: Cost, part: Part) -> list[tuple[str, int, int]]:
    """Return (resource, needed, available) for resources that one layer exceeds at any throughput."""
    limits = [("DSPs", cost.dsp, part.dsp)]
    if part.luts_left is not None:
        limits.append(("LUTs", cost.luts, part.luts_left))
    if part.ram_bits is not None:
        limits.append(("bits of RAM", cost.ram_bits, part.ram_bits))
    if part.ram_blocks is not None:
        limits += [
            (f"{kind.name} blocks", needed, there)
            for kind, needed, there in zip(part.family.ram, cost.ram_blocks, part.ram_blocks, strict=True)
        ]
    if not part.dram:
        limits += [("bits a frame to and from DRAM", cost.dram_read + cost.dram_write, 0)]
    return [(name, needed, there) for name, needed, there in limits if needed > there]


@cache
def front(layer: Layer, part: Part, context: GraphContext = NO_CONTEXT) -> tuple[Choice, ...]:
    """Return those of ``all_choices`` that no other dominates in cycles and limited resources."""
    choices = all_choices(layer, part, context)
    return tuple(
        choices[i] for i in non_dominated([(c.cost.cycles, *constrained(c.cost, part)) for c in choices])
    )


def non_dominated(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return indices of rows that no other row equals or undercuts in every column; of equal rows the first."""
    if not rows:
        return []
    table = np.array(rows, dtype=np.int64)
    order = np.lexsort(table.T[::-1])  # lexicographic: no later row dominates an earlier one
    kept: list[int] = []
    best = np.empty((0, table.shape[1]), dtype=np.int64)
    for index in order:
        if not (best <= table[index]).all(axis=1).any():
            kept.append(int(index))
            best = np.vstack([best, table[index]])
    return kept
