"""Explanation of an impossible placement: a layer that fits no device, or the smallest conflicting set of
rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from ortools.sat.python import cp_model

from fanin.planner.cluster import Part
from fanin.planner.search.choices import all_choices, exceeded
from fanin.planner.search.instance import Instance
from fanin.planner.search.problem import RULES, Problem
from fanin.planner.search.relax import slowest

EFFORT = 5.0  # deterministic seconds per set of rules
PLENTY = 1 << 40  # DSPs: more than any layer can use


def misfit(instance: Instance) -> str | None:
    """Return one line about a layer that fits no device at any throughput, with its closest fit; None
    without.
    """
    for number, (node, context) in enumerate(zip(instance.model.nodes, instance.model.contexts, strict=True)):
        cluster = instance.cluster
        devices = cluster.devices
        allowed = [devices[cluster.host]] if number in instance.model.pinned else devices
        if any(all_choices(node.layer, device.part, context) for device in allowed):
            continue
        best: tuple[float, str] | None = None
        for device in allowed:
            for parallelism in node.layer.parallelisms():
                for storage in node.layer.storages:
                    cost = context.cost(node.layer, parallelism, storage, device.part.family)
                    over = exceeded(cost, device.part)
                    worst = max(over, key=lambda entry: entry[1] / max(entry[2], 1))
                    excess = worst[1] / max(worst[2], 1)
                    if best is None or excess < best[0]:
                        best = (
                            excess,
                            f"{worst[1]:,} {worst[0]} of the {worst[2]:,} of {device.name}, the closest",
                        )
        assert best is not None
        where = " (the host's)" if number in instance.model.pinned else ""
        return f"{node.name} fits no device{where}: at least, it takes {best[1]}"
    return None


def smallest_conflict(instance: Instance) -> tuple[str, ...] | None:
    """Return the fewest rules that no placement keeps together at any throughput; None if none are proved."""
    for count in range(1, len(RULES) + 1):
        for rules in itertools.combinations(sorted(RULES), count):
            if _impossible(_without(instance, RULES.difference(rules)), frozenset(rules)):
                return rules
    return None


def _without(instance: Instance, rules: frozenset[str]) -> Instance:
    """Return the instance with ample resources for these rules, so that they exclude no choice."""

    def rich(part: Part) -> Part:
        if "dsp" in rules:
            part = replace(part, dsp=PLENTY)
        if "luts" in rules:
            part = replace(part, luts=None)
        if "ram" in rules:
            part = replace(part, ram_bits=None, ram_blocks=None)
        if "dram" in rules and not part.dram:
            part = replace(part, dram=part.clock)
        return part

    devices = tuple(replace(device, part=rich(device.part)) for device in instance.cluster.devices)
    return Instance(instance.model, replace(instance.cluster, devices=devices))


def _impossible(instance: Instance, rules: frozenset[str]) -> bool:
    period = slowest(instance)
    problem = Problem(instance, period, period, rules=rules, priorities="connections" in rules)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    return bool(solver.solve(problem.cp) == cp_model.INFEASIBLE)


def in_words(instance: Instance, rules: tuple[str, ...]) -> str:
    """Return the conflict as a sentence."""
    clauses = {
        "dsp": _totals(instance, "DSPs", lambda part: part.dsp, "dsp"),
        "luts": _totals(instance, "LUTs", lambda part: part.luts or 0, "luts"),
        "ram": _ram(instance),
        "dram": "some devices have no DRAM",
        "network": "some devices have no network",
        "connections": f"at most {_few(instance)} connections a device, each with a priority of its own",
        "hops": "as many hops on every way to a join",
        "host": "inputs, their consumers, losses and outputs on the host's device",
    }
    said = [clauses[rule] for rule in rules]
    together = "this cannot be kept" if len(said) == 1 else "these cannot be kept together"
    return f"no placement at any throughput; {together}: {'; '.join(said)}"


def _few(instance: Instance) -> str:
    return "/".join(str(c) for c in sorted({part.connections for part in instance.cluster.parts}))


def _totals(instance: Instance, name: str, there: Callable[[Part], int], field: str) -> str:
    total = sum(there(device.part) for device in instance.cluster.devices)
    least = sum(
        min(
            getattr(choice.cost, field)
            for part in instance.cluster.parts
            for choice in all_choices(node.layer, part, context)
        )
        for node, context in zip(instance.model.nodes, instance.model.contexts, strict=True)
    )
    return f"{name} ({total:,} on {len(instance.cluster.devices)} devices, the layers take at least {least:,})"


def _ram(instance: Instance) -> str:
    if all(part.ram_bits is not None for part in instance.cluster.parts):
        return _totals(instance, "bits of RAM", lambda part: part.ram_bits or 0, "ram_bits")
    return "RAM of the devices"
