"""Explanation of an impossible placement: a layer that fits no device, or conflicting rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from ortools.sat.python import cp_model

from fanin.planner.cluster import Part
from fanin.planner.search.choices import all_choices, exceeded_limits
from fanin.planner.search.instance import Instance
from fanin.planner.search.problem import RULES, Problem
from fanin.planner.search.relax import longest_period

EFFORT = 5.0  # deterministic seconds per set of rules
UNLIMITED = 1 << 40  # number of DSPs that no layer exceeds


def misfit(instance: Instance) -> str | None:
    """Return a line on a layer that fits no device at any throughput, with its closest fit; or None."""
    for number, (node, context) in enumerate(zip(instance.model.nodes, instance.model.contexts, strict=True)):
        cluster = instance.cluster
        devices = cluster.devices
        allowed = [devices[cluster.host]] if number in instance.model.pinned else devices
        if any(all_choices(node.layer, device.part, context) for device in allowed):
            continue
        best: tuple[float, str] | None = None
        for device in allowed:
            for parallelism, storage in node.layer.builds():
                cost = context.cost(node.layer, parallelism, storage, device.part.family)
                excesses = [
                    (needed / max(available, 1), resource, needed, available)
                    for resource, needed, available in exceeded_limits(cost, device.part)
                ]
                excess, resource, needed, available = max(excesses, key=lambda entry: entry[0])
                if best is None or excess < best[0]:
                    need = f"{needed:,} {resource} of the {available:,} of {device.name}, the closest"
                    best = (excess, need)
        assert best is not None
        host_note = " (the host's)" if number in instance.model.pinned else ""
        return f"{node.name} fits no device{host_note}: at least, it takes {best[1]}"
    return None


def smallest_conflict(instance: Instance) -> tuple[str, ...] | None:
    """Return a smallest set of rules that no placement keeps at any throughput; None if none is proved."""
    for count in range(1, len(RULES) + 1):
        for rules in itertools.combinations(sorted(RULES), count):
            if _impossible(_relax(instance, RULES.difference(rules)), frozenset(rules)):
                return rules
    return None


def _relax(instance: Instance, rules: frozenset[str]) -> Instance:
    """Return the instance with unlimited resources of ``rules``, so that these exclude no choice."""

    def relaxed(part: Part) -> Part:
        if "dsp" in rules:
            part = replace(part, dsp=UNLIMITED)
        if "luts" in rules:
            part = replace(part, luts=None)
        if "ram" in rules:
            part = replace(part, ram_bits=None, ram_blocks=None)
        if "dram" in rules and not part.dram:
            part = replace(part, dram=part.clock)
        return part

    devices = tuple(replace(device, part=relaxed(device.part)) for device in instance.cluster.devices)
    return Instance(instance.model, replace(instance.cluster, devices=devices))


def _impossible(instance: Instance, rules: frozenset[str]) -> bool:
    """Return True if CP-SAT proves that no placement keeps ``rules``, even at the longest period."""
    period = longest_period(instance)
    problem = Problem(instance, period, period, rules=rules, priorities="connections" in rules)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    return bool(solver.solve(problem.cp) == cp_model.INFEASIBLE)


def describe_conflict(instance: Instance, rules: tuple[str, ...]) -> str:
    """Return a sentence that says that ``rules`` cannot be kept together."""
    max_connections = _connection_limits(instance)
    clauses = {
        "dsp": _totals(instance, "DSPs", lambda part: part.dsp, "dsp"),
        "luts": _totals(instance, "LUTs", lambda part: part.luts or 0, "luts"),
        "ram": _ram(instance),
        "dram": "some devices have no DRAM",
        "network": "some devices have no network",
        "connections": f"at most {max_connections} connections a device, each with a priority of its own",
        "hops": "as many hops on every way to a join",
        "host": "inputs, their consumers, losses and outputs on the host's device",
    }
    broken_clauses = [clauses[rule] for rule in rules]
    claim = "this cannot be kept" if len(broken_clauses) == 1 else "these cannot be kept together"
    return f"no placement at any throughput; {claim}: {'; '.join(broken_clauses)}"


def _connection_limits(instance: Instance) -> str:
    return "/".join(str(c) for c in sorted({part.connections for part in instance.cluster.parts}))


def _totals(instance: Instance, name: str, capacity: Callable[[Part], int], field: str) -> str:
    total = sum(capacity(device.part) for device in instance.cluster.devices)
    minimum = sum(
        min(
            getattr(choice.cost, field)
            for part in instance.cluster.parts
            for choice in all_choices(node.layer, part, context)
        )
        for node, context in zip(instance.model.nodes, instance.model.contexts, strict=True)
    )
    return (
        f"{name} ({total:,} on {len(instance.cluster.devices)} devices, the layers take at least {minimum:,})"
    )


def _ram(instance: Instance) -> str:
    if all(part.ram_bits is not None for part in instance.cluster.parts):
        return _totals(instance, "bits of RAM", lambda part: part.ram_bits or 0, "ram_bits")
    return "RAM of the devices"
