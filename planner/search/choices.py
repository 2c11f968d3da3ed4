"""Choices of parallelism and storage of a layer on a part, and the choices that no other dominates."""

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
    """Build of a layer on a part, with its cost."""

    parallelism: Parallelism
    storage: Storage
    cost: Cost


def limited_costs(cost: Cost, part: Part) -> tuple[int, ...]:
    """Return the costs that the part limits: DSPs, LUTs, RAM, bits read from DRAM, bits written to DRAM.

    LUTs are absent if the part does not limit them. RAM is in bits, in blocks by kind, or in both.
    """
    luts = (cost.luts,) if part.luts is not None else ()
    ram = (cost.ram_bits,) if part.ram_bits is not None else ()
    blocks = cost.ram_blocks if part.ram_blocks is not None else ()
    return (cost.dsp, *luts, *ram, *blocks, cost.dram_read, cost.dram_write)


@cache
def connection_cost(part: Part) -> tuple[int, ...]:
    """Return the cost of a connection, in the order of ``limited_costs``."""
    luts = device_luts(part.family, 1) - device_luts(part.family, 0)
    return limited_costs(Cost(0, 0, luts, 0, (0,) * len(part.family.ram), 0, 0), part)


@cache
def all_choices(layer: Layer, part: Part, context: GraphContext = NO_CONTEXT) -> tuple[Choice, ...]:
    """Return every choice that fits the part when alone, at any throughput; the fastest first."""
    choices = [
        Choice(parallelism, storage, context.cost(layer, parallelism, storage, part.family))
        for parallelism, storage in layer.builds()
    ]
    fitting = [choice for choice in choices if not exceeded_limits(choice.cost, part)]
    return tuple(sorted(fitting, key=lambda choice: (choice.cost.cycles, limited_costs(choice.cost, part))))


def exceeded_limits(cost: Cost, part: Part) -> list[tuple[str, int, int]]:
    """Return (resource, needed, available) for each resource that a layer exceeds at any throughput."""
    limits = [("DSPs", cost.dsp, part.dsp)]
    if part.available_luts is not None:
        limits.append(("LUTs", cost.luts, part.available_luts))
    if part.ram_bits is not None:
        limits.append(("bits of RAM", cost.ram_bits, part.ram_bits))
    if part.ram_blocks is not None:
        limits += [
            (f"{kind.name} blocks", needed, available)
            for kind, needed, available in zip(part.family.ram, cost.ram_blocks, part.ram_blocks, strict=True)
        ]
    if not part.dram:
        limits += [("bits a frame to and from DRAM", cost.dram_read + cost.dram_write, 0)]
    return [(name, needed, available) for name, needed, available in limits if needed > available]


@cache
def pareto_front(layer: Layer, part: Part, context: GraphContext = NO_CONTEXT) -> tuple[Choice, ...]:
    """Return the choices of ``all_choices`` that no other one dominates in cycles and limited resources."""
    choices = all_choices(layer, part, context)
    return tuple(
        choices[i] for i in non_dominated([(c.cost.cycles, *limited_costs(c.cost, part)) for c in choices])
    )


def non_dominated(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the indices of rows that no other row dominates, that is, is at most as large in every column.

    Of equal rows, the first is returned.
    """
    if not rows:
        return []
    table = np.array(rows, dtype=np.int64)
    order = np.lexsort(table.T[::-1])  # lexicographic: no later row dominates an earlier one
    indices: list[int] = []
    best = np.empty((0, table.shape[1]), dtype=np.int64)
    for index in order:
        if not (best <= table[index]).all(axis=1).any():
            indices.append(int(index))
            best = np.vstack([best, table[index]])
    return indices
