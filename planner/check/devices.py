"""Rules for the files of the devices, which must agree with the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from fanin.planner.check.kinds import CONVOLUTIONS, WINDOWS
from fanin.planner.check.layers import Facts
from fanin.planner.check.rates import ROUNDING, differ
from fanin.planner.plan.read import DeviceEntry, DeviceFile, LayerEntry, PlanFiles


def wrong_files(plan: PlanFiles, facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield a line for each difference between a device's file and the plan."""
    for stray in plan.strays:
        yield f"devices/{stray}: no device of that name has layers"
    for device in plan.devices:
        if device.name in plan.files:
            for line in _file(plan, facts, device, plan.files[device.name]):
                yield f"devices/{device.name}.json: {line}"


def _file(plan: PlanFiles, facts: Mapping[str, Facts], device: DeviceEntry, file: DeviceFile) -> Iterator[str]:
    """Yield the differences between a device's file and the plan."""
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
    inner = [e for e in plan.edges if not plan.is_cut(e) and plan.layer_devices[e.source] == device.name]
    yield from _difference(
        "connection",
        Counter(f"{edge.source} → {edge.target}" for edge in inner),
        Counter(" → ".join(ends) for ends in file.connections),
    )
    yield from _difference("network entry", Counter(_network(plan, device)), Counter(map(_entry, file.network)))


def _difference(kind: str, expected: Counter[str], stated: Counter[str]) -> Iterator[str]:
    """Yield a line for each item that is missing in ``stated``, and for each that is not in ``expected``."""
    yield from (f"{kind} {item} is missing" for item in (expected - stated).elements())
    yield from (f"{kind} {item} is not the plan's" for item in (stated - expected).elements())


def _network(plan: PlanFiles, device: DeviceEntry) -> Iterator[str]:
    """Yield the expected entries of a device's ``network`` as text: one for each end of a connection."""
    for index, edge in plan.connection_edges.items():
        for direction, layer, peer in (("out", edge.source, edge.target), ("in", edge.target, edge.source)):
            if plan.layer_devices[layer] == device.name:
                yield _entry(
                    (index, direction, layer, plan.layer_devices[peer], plan.connections[index].priority)
                )


def _entry(entry: tuple[int, str, str, str, int]) -> str:
    number, direction, layer, peer, priority = entry
    return f"{number} ({direction}, {layer}, {peer}, priority {priority})"


def _specification(
    plan: PlanFiles, layer: LayerEntry, facts: Facts, stated: Mapping[str, Any], fastest: Fraction
) -> Iterator[str]:
    """Yield the differences of a layer's specification.

    ``fastest``: frames per second by the layer's cycles.
    """
    expected = _expected_specification(layer, facts)
    for field, value in stated.items():
        if field in ("induced_delay_frames", "target_throughput"):
            expected_number = facts.delay if field == "induced_delay_frames" else plan.throughput
            if differ(value, expected_number):
                yield f"{field} is {float(value):,}, not {float(expected_number):,}"
        elif field == "actual_throughput":
            if not plan.throughput * (1 - ROUNDING) <= value <= fastest * (1 + ROUNDING):
                yield f"{field} is {float(value):,}, not in {float(plan.throughput):,}…{float(fastest):,}"
        elif field not in expected:
            yield f"{field} is {value}, but {layer.kind} has none"
        elif value != expected[field]:
            yield f"{field} is {value}, not {expected[field]}"


def _expected_specification(layer: LayerEntry, facts: Facts) -> dict[str, Any]:
    p = layer.parallelism
    expected: dict[str, Any] = {
        "parallel_io": (p["pi"], p["po"]),
        "output_shape": facts.output,
        "parameters": layer.parameters,
    }
    if facts.inputs:
        expected["input_shape"] = facts.inputs[0]
    if layer.kind in WINDOWS:
        expected |= {"kernel_shape": layer.kernel, "stride": layer.stride, "padding": layer.padding}
    if layer.kind in CONVOLUTIONS:
        expected |= {
            "output_channels": layer.output_channels,
            "groups": layer.groups,
            "parallel_input_channel": p["pic"],
            "parallel_output_channel": p["poc"],
            "parallel_horizontal": p["ph"],
        }
    return expected
