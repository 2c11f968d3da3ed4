"""Rules for the file of each device: it must agree with the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from fanin.planner.check.files import Device, DeviceFile, LayerEntry, Plan
from fanin.planner.check.kinds import CONVOLUTIONS, WINDOWS
from fanin.planner.check.layers import Facts
from fanin.planner.check.rates import ROUNDING, differ


def wrong_files(plan: Plan, facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield a line for every difference between a device's file and the plan."""
    for stray in plan.strays:
        yield f"devices/{stray}: no device of that name has layers"
    for device in plan.devices:
        if device.name in plan.files:
            for line in _file(plan, facts, device, plan.files[device.name]):
                yield f"devices/{device.name}.json: {line}"


def _file(plan: Plan, facts: Mapping[str, Facts], device: Device, file: DeviceFile) -> Iterator[str]:
    host = plan.host == device.name
    if file.device != device.name:
        yield f"device is {file.device}"
    if file.host != host:
        yield f"host is {str(file.host).lower()}, not {str(host).lower()}"
    if file.clock != device.clock:
        yield f"clock_hz is {file.clock:,}, not {device.clock:,}"
    if differ(file.throughput, plan.throughput):
        yield f"throughput is {float(file.throughput):,}, not {float(plan.throughput):,}"
    layers = {layer.name: layer for layer in plan.layers if layer.device == device.name}
    yield from _difference("layer", Counter(layers.keys()), Counter(name for name, _, _ in file.layers))
    for name, kind, specification in file.layers:
        if name not in layers:
            continue
        if kind != layers[name].kind:
            yield f"{name}: kind is {kind}, not {layers[name].kind}"
            continue
        fastest = Fraction(device.clock, facts[name].figures["cycles"])
        yield from (
            f"{name}: {line}"
            for line in _specification(plan, layers[name], facts[name], specification, fastest)
        )
    inner = [e for e in plan.edges if not plan.cut(e) and plan.place[e.source] == device.name]
    yield from _difference(
        "connection",
        Counter(f"{edge.source} → {edge.target}" for edge in inner),
        Counter(" → ".join(ends) for ends in file.connections),
    )
    yield from _difference("network entry", Counter(_network(plan, device)), Counter(map(_entry, file.network)))


def _difference(what: str, wanted: Counter[str], there: Counter[str]) -> Iterator[str]:
    """Yield lines about missing and surplus items."""
    yield from (f"{what} {item} is missing" for item in (wanted - there).elements())
    yield from (f"{what} {item} is not the plan's" for item in (there - wanted).elements())


def _network(plan: Plan, device: Device) -> Iterator[str]:
    for index, edge in plan.carried.items():
        for way, own, other in (("out", edge.source, edge.target), ("in", edge.target, edge.source)):
            if plan.place[own] == device.name:
                yield _entry((index, way, own, plan.place[other], plan.connections[index].priority))


def _entry(entry: tuple[int, str, str, str, int]) -> str:
    number, direction, layer, peer, priority = entry
    return f"{number} ({direction}, {layer}, {peer}, priority {priority})"


def _specification(
    plan: Plan, layer: LayerEntry, facts: Facts, there: Mapping[str, Any], fastest: Fraction
) -> Iterator[str]:
    """Yield the differences of a layer's specification; ``fastest``: frames per second by its own cycles."""
    wanted = _wanted(layer, facts)
    for field, value in there.items():
        if field in ("induced_delay_frames", "target_throughput"):
            right = facts.delay if field == "induced_delay_frames" else plan.throughput
            if differ(value, right):
                yield f"{field} is {float(value):,}, not {float(right):,}"
        elif field == "actual_throughput":
            if not plan.throughput * (1 - ROUNDING) <= value <= fastest * (1 + ROUNDING):
                yield f"{field} is {float(value):,}, not in {float(plan.throughput):,}…{float(fastest):,}"
        elif field not in wanted:
            yield f"{field} is {value}, but {layer.kind} has none"
        elif value != wanted[field]:
            yield f"{field} is {value}, not {wanted[field]}"


def _wanted(layer: LayerEntry, facts: Facts) -> dict[str, Any]:
    p = layer.parallelism
    wanted: dict[str, Any] = {
        "parallel_io": (p["pi"], p["po"]),
        "output_shape": facts.output,
        "parameters": layer.parameters,
    }
    if facts.inputs:
        wanted["input_shape"] = facts.inputs[0]
    if layer.kind in WINDOWS:
        wanted |= {"kernel_shape": layer.kernel, "stride": layer.stride, "padding": layer.padding}
    if layer.kind in CONVOLUTIONS:
        wanted |= {
            "output_channels": layer.output_channels,
            "groups": layer.groups,
            "parallel_input_channel": p["pic"],
            "parallel_output_channel": p["poc"],
            "parallel_horizontal": p["ph"],
        }
    return wanted
