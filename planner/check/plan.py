"""Checker of a plan's files: checks every rule, independently of the search.

The checker derives exact figures from shapes and graph, and compares the plan's figures with them. The rules
are in docs/systems/planner.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fanin.planner.check.devices import wrong_files
from fanin.planner.check.kinds import KINDS
from fanin.planner.check.layers import Facts, derive, dimensions, shape_text
from fanin.planner.check.memory import memory_rule
from fanin.planner.check.rates import RATE_RULES, differ
from fanin.planner.plan.read import ConnectionEntry, EdgeEntry, PlanFiles, read_plan

Layers = Mapping[str, Facts]


def check_plan(directory: Path) -> list[str]:
    """Return a line for each broken rule of the plan in ``directory``; none for a valid plan.

    Raises InputError, with file and field, for missing or malformed input.
    """
    return broken_rules(read_plan(directory))


def broken_rules(plan: PlanFiles) -> list[str]:
    """Return a line for each broken rule. If the graph itself is broken, all lines are about the graph."""
    violations = list(_graph(plan))
    if violations:
        return violations
    facts, violations = derive(plan)
    if violations:
        return violations
    violations = [line for rule in RULES for line in rule(plan, facts)]
    return violations or list(memory_rule(plan, facts))


def _graph(plan: PlanFiles) -> Iterator[str]:
    """Check that each layer is unique, on an existing device, and has one source for each input of its kind."""
    devices = [device.name for device in plan.devices]
    yield from (f"{name}: there are {n} devices of that name" for name, n in Counter(devices).items() if n > 1)
    if plan.host not in devices:
        yield f"host: there is no device {plan.host}"
    if not plan.layers:
        yield "layers: there are none"
    names = [layer.name for layer in plan.layers]
    yield from (f"{name}: there are {n} layers of that name" for name, n in Counter(names).items() if n > 1)
    positions = {name: index for index, name in enumerate(names)}
    for layer in plan.layers:
        if layer.device not in devices:
            yield f"{layer.name}: there is no device {layer.device}"
        edges = len(plan.input_edges[layer.name])
        inputs = KINDS[layer.kind].inputs
        if edges < 2 if inputs is None else edges != inputs:
            yield f"{layer.name}: {edges} edges lead to it, and {layer.kind} has {inputs or '2 or more'} inputs"
    for edge in plan.edges:
        missing = [end for end in (edge.source, edge.target) if end not in positions]
        yield from (f"{edge}: there is no layer {end}" for end in missing)
        if not missing and positions[edge.source] >= positions[edge.target]:
            yield f"{edge}: {edge.source} does not stand before {edge.target}"


def _shapes(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check the stated shapes of inputs and outputs."""
    for layer in plan.layers:
        fact = facts[layer.name]
        if layer.inputs != fact.inputs:
            sources = [edge.source for edge in plan.input_edges[layer.name]]
            expected = " and ".join(
                f"{shape_text(s)} by {source}" for s, source in zip(fact.inputs, sources, strict=True)
            )
            stated = " and ".join(map(shape_text, layer.inputs))
            yield f"{layer.name}: inputs {stated or 'none'}, but it gets {expected or 'none'}"
        if layer.output != fact.output:
            yield f"{layer.name}: output {shape_text(layer.output)}, but it makes {shape_text(fact.output)}"


def _gradients(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that a layer has a gradient if, and only if, an upstream layer has parameters."""
    for layer in plan.layers:
        if layer.gradient and not facts[layer.name].gradient:
            yield f"{layer.name}: gradient is true, but no layer before it has parameters"
        if not layer.gradient and facts[layer.name].gradient:
            yield f"{layer.name}: gradient is false, but a layer before it has parameters"


def _figures(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check the stated figures, RAM blocks and delay of each layer."""
    for layer in plan.layers:
        fact = facts[layer.name]
        for field, stated in layer.figures.items():
            if stated != fact.figures[field]:
                yield f"{layer.name}: {field} is {stated:,}, not {fact.figures[field]:,}"
        for kind in {**fact.blocks, **layer.blocks}:
            expected, stated = fact.blocks.get(kind, 0), layer.blocks.get(kind, 0)
            if stated != expected:
                yield f"{layer.name}: ram_blocks_by_kind {kind} is {stated:,}, not {expected:,}"
        if differ(layer.delay, fact.delay):
            yield f"{layer.name}: delay_frames is {float(layer.delay):,}, not {float(fact.delay):,}"


def _parallelism(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that each parallelism divides its dimension, and is 1 if the kind of layer lacks it."""
    for layer in plan.layers:
        divided = dimensions(layer, facts[layer.name])
        for field, value in layer.parallelism.items():
            size, title = divided.get(field, (1, ""))
            if field not in divided and value != 1:
                yield f"{layer.name}: {field} = {value}, but {layer.kind} has none"
            elif size % value:
                yield f"{layer.name}: {field} = {value} does not divide {size:,} {title}"


def _storage(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that only layers with parameters have them in DRAM."""
    for layer in plan.layers:
        if layer.parameters == "dram" and not facts[layer.name].figures["parameter_words"]:
            yield f"{layer.name}: parameters are in dram, but {layer.kind} has none"


def _host(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that inputs, their consumers, losses and outputs are on the host's device."""
    inputs = {layer.name for layer in plan.layers if layer.kind == "input"}
    for layer in plan.layers:
        input_sources = [edge.source for edge in plan.input_edges[layer.name] if edge.source in inputs]
        if layer.device == plan.host or not (
            input_sources or layer.kind in ("input", "soft_cross_loss", "output")
        ):
            continue
        reason = f"is fed by {input_sources[0]}" if input_sources else f"is of kind {layer.kind}"
        yield f"{layer.name}: is on {layer.device}, but {reason} and has to be on the host's {plan.host}"


def _hops(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that all paths to a layer cross the network equally often."""
    for layer in plan.layers:
        edges = [edge for edge in plan.input_edges[layer.name] if not plan.is_label(edge)]
        hops = [facts[edge.source].hops + plan.is_cut(edge) for edge in edges]
        if len(set(hops)) > 1:
            hops_text = " and ".join(f"{n} by {edge.source}" for n, edge in zip(hops, edges, strict=True))
            yield f"{layer.name}: hops {hops_text}"


def _edges(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check the bits and label of each edge, and that cut edges alone have a connection."""
    for edge in plan.edges:
        bits = facts[edge.source].bits
        if edge.bits != bits:
            yield f"{edge}: bits is {edge.bits:,}, not {bits:,}"
        if edge.label != plan.is_label(edge):
            yield f"{edge}: label is {str(edge.label).lower()}, not {str(plan.is_label(edge)).lower()}"
        source, target = plan.layer_devices[edge.source], plan.layer_devices[edge.target]
        if plan.is_cut(edge) and edge.connection is None:
            yield f"{edge}: leads from {source} to {target}, but has no connection"
        if not plan.is_cut(edge) and edge.connection is not None:
            yield f"{edge}: stays on {source}, but has connection {edge.connection}"


def _connections(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that each cut edge has one connection, which agrees with the edge."""
    for edge in plan.edges:
        if edge.connection is None or not plan.is_cut(edge):
            continue
        if edge.connection >= len(plan.connections):
            yield f"{edge}: there is no connection {edge.connection}"
        elif plan.connection_edges[edge.connection] is not edge:
            yield f"{edge}: connection {edge.connection} is that of {plan.connection_edges[edge.connection]}"
    for index, connection in enumerate(plan.connections):
        if connection.id != index:
            yield f"connection {index}: id is {connection.id}"
        if index in plan.connection_edges:
            yield from _connection_agrees(plan, facts, index, connection, plan.connection_edges[index])
        else:
            yield f"connection {index}: no cut edge has it"


def _connection_agrees(
    plan: PlanFiles, facts: Layers, index: int, connection: ConnectionEntry, edge: EdgeEntry
) -> Iterator[str]:
    """Check that a connection agrees with its edge."""
    bits = facts[edge.source].bits
    ends = (("from", connection.source, edge.source), ("to", connection.target, edge.target))
    for direction, stated, layer in ends:
        device = plan.layer_devices[layer]
        if stated != (device, layer):
            yield f"connection {index}: leads {direction} {stated[1]} on {stated[0]}, not {layer} on {device}"
    if connection.bits != bits:
        yield f"connection {index}: bits is {connection.bits:,}, not {bits:,}"
    rate = bits * plan.throughput
    if differ(connection.bits_per_second, rate):
        yield (
            f"connection {index}: bits_per_second is {float(connection.bits_per_second):,}, not {float(rate):,}"
        )
    hops = facts[edge.target].hops
    if connection.hops != hops:
        yield f"connection {index}: hops is {connection.hops}, not {hops}"


def _priorities(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that priorities are unique at each device, and below its number of connections."""
    for device in plan.devices:
        used: dict[int, int] = {}
        for index, edge in plan.connection_edges.items():
            if device.name not in (plan.layer_devices[edge.source], plan.layer_devices[edge.target]):
                continue
            priority = plan.connections[index].priority
            if priority >= device.connections:
                yield f"connection {index}: priority is {priority}, but {device.name} has {device.connections}"
            if priority in used:
                yield f"{device.name}: connections {used[priority]} and {index} both have priority {priority}"
            used[priority] = index


RULES: tuple[Callable[[PlanFiles, Layers], Iterator[str]], ...] = (
    *(_shapes, _gradients, _figures, _parallelism, _storage, _host, _hops, _edges, _connections, _priorities),
    *RATE_RULES,
    wrong_files,
)
