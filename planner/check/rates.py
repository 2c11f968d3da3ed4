"""Rules for the load of a plan's devices: limits, utilisation, and the resulting throughput."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from fanin.cnn.layers.family import family
from fanin.cnn.layers.logic import device_luts
from fanin.planner.check.layers import Facts
from fanin.planner.plan.read import RATES, DeviceEntry, PlanFiles

Layers = Mapping[str, Facts]
ROUNDING = Fraction(1, 10**9)  # relative tolerance of figures that the plan states as floats
TICKS = Fraction(1, 10**6)  # relative loss of an optimum when the solver rounds to its unit of time
FRAMES_DURING_UPDATE = 2  # maximum number of frames that enter a layer's rows during its update
RESTART_FRAMES = 4  #: maximum time that a pipeline takes to restart, in frames
_NAMES = {"dram_read": "read from DRAM", "dram_write": "written to DRAM", "network": "over the network"}


@dataclass(frozen=True)
class Load:
    """Load of a device."""

    dsp: int
    luts: int
    ram_bits: int
    blocks: Mapping[str, int]  #: RAM blocks by kind
    rates: Mapping[str, int]  #: bits per frame by the names in RATES
    connections: int


def differ(stated: Fraction, expected: Fraction) -> bool:
    """Return True if two figures differ by more than rounding."""
    return abs(stated - expected) > ROUNDING * max(abs(expected), Fraction(1, 10**3))


def _load(plan: PlanFiles, facts: Layers, device: DeviceEntry) -> Load:
    placed_facts = [facts[layer.name] for layer in plan.layers if layer.device == device.name]
    cut_bits = [
        facts[edge.source].bits
        for edge in plan.edges
        if plan.is_cut(edge)
        and device.name in (plan.layer_devices[edge.source], plan.layer_devices[edge.target])
    ]
    total = {
        field: sum(fact.figures[field] for fact in placed_facts)
        for field in ("dsp", "luts", "ram_bits", *RATES[:2])
    }
    return Load(
        dsp=total["dsp"],
        luts=total["luts"] + (device_luts(family(device.family), len(cut_bits)) if placed_facts else 0),
        ram_bits=total["ram_bits"],
        blocks={ram.kind: sum(fact.blocks[ram.kind] for fact in placed_facts) for ram in device.ram},
        rates={"dram_read": total["dram_read"], "dram_write": total["dram_write"], "network": sum(cut_bits)},
        connections=len(cut_bits),
    )


def _rates(device: DeviceEntry) -> dict[str, int]:
    return {"dram_read": device.dram, "dram_write": device.dram, "network": device.network}


def _limits(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that no device's load exceeds its resources."""
    for device in plan.devices:
        load = _load(plan, facts, device)
        counts: list[tuple[str, int, int | None]] = [
            ("DSPs", load.dsp, device.dsp),
            ("LUTs", load.luts, device.luts),
            ("bits of RAM", load.ram_bits, device.ram_bits),
            *((f"{ram.kind} blocks", load.blocks[ram.kind], ram.blocks) for ram in device.ram),
            ("connections", load.connections, device.connections),
        ]
        for resource, needed, limit in counts:
            if limit is not None and needed > limit:
                yield f"{device.name}: {needed:,} {resource} of {limit:,}"
        for field, rate in _rates(device).items():
            needed_rate = plan.throughput * load.rates[field]
            if needed_rate > rate * (1 + ROUNDING):
                yield f"{device.name}: {math.ceil(needed_rate):,} bits/s {_NAMES[field]} of {rate:,}"


def _clocks(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that each layer is fast enough for the throughput."""
    clocks = {device.name: device.clock for device in plan.devices}
    for layer in plan.layers:
        needed, clock = plan.throughput * facts[layer.name].figures["cycles"], clocks[layer.device]
        if needed > clock * (1 + ROUNDING):
            yield f"{layer.name}: {math.ceil(needed):,} cycles/s of {clock:,} ({layer.device}'s clock)"


def _utilisation(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check the stated utilisation.

    Of RAM blocks, the most used kind counts. An absent resource has share 0.
    """
    for device in plan.devices:
        load = _load(plan, facts, device)
        blocks = [_share(load.blocks[ram.kind], ram.blocks) for ram in device.ram if ram.blocks is not None]
        shares = {
            "dsp": _share(load.dsp, device.dsp),
            "luts": None if device.luts is None else _share(load.luts, device.luts),
            "ram_bits": None if device.ram_bits is None else _share(load.ram_bits, device.ram_bits),
            "ram_blocks": max(blocks, default=None),
            "connections": _share(load.connections, device.connections),
            **{f: _share(plan.throughput * load.rates[f], rate) for f, rate in _rates(device).items()},
        }
        for field, share in shares.items():
            stated = plan.utilisation[device.name][field]
            agrees = stated is share if stated is None or share is None else not differ(stated, share)
            if not agrees:
                yield f"{device.name}: utilisation {field} is {_figure(stated)}, not {_figure(share)}"


def _share(used: Fraction | int, available: int) -> Fraction:
    return Fraction(used) / available if available else Fraction(0)


def _figure(value: Fraction | None) -> str:
    return "null" if value is None else f"{float(value):,.9g}"


def _throughput(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that ``limit`` names the slowest resource, and that the throughput is not below its rate."""
    periods: dict[tuple[str, str, str | None], Fraction] = {}
    devices = {device.name: device for device in plan.devices}
    for device in plan.devices:
        bits = _load(plan, facts, device).rates
        for field, rate in _rates(device).items():
            periods[device.name, field, None] = _share(bits[field], rate)
    for layer in plan.layers:
        cycles = Fraction(facts[layer.name].figures["cycles"], devices[layer.device].clock)
        periods[layer.device, "cycles", layer.name] = cycles
    slowest = max(periods, key=lambda key: periods[key])
    if plan.limit not in periods:
        yield f"limit: there is no {_limit(plan.limit)}"
    elif periods[plan.limit] * (1 + ROUNDING) < periods[slowest]:
        yield f"limit: {_limit(plan.limit)} is faster than {_limit(slowest)}"
    if plan.throughput * periods[slowest] < 1 - ROUNDING:
        rate_text = _figure(1 / periods[slowest])
        yield f"throughput: {_figure(plan.throughput)} frames/s, but {_limit(slowest)} lets {rate_text} through"


def _limit(key: tuple[str, str, str | None]) -> str:
    device, resource, layer = key
    return f"{device}'s {resource}{f' of {layer}' if layer else ''}"


def _bound(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that the bound is at least the throughput, and that gap and status agree with both."""
    if plan.bound < plan.throughput * (1 - ROUNDING):
        yield f"bound: {_figure(plan.bound)} is below the throughput, {_figure(plan.throughput)}"
    gap = plan.bound / plan.throughput - 1
    if abs(plan.gap - gap) > ROUNDING:
        yield f"gap: is {_figure(plan.gap)}, not {_figure(gap)}"
    if plan.status == "optimal" and gap > TICKS:
        yield f"solver: status is optimal, but the gap {_figure(gap)}"


def _flow(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check that the throughput in the flow model does not exceed the throughput."""
    if plan.flow > plan.throughput * (1 + ROUNDING):
        yield f"flow_throughput: {_figure(plan.flow)} is above the throughput, {_figure(plan.throughput)}"


def _updates(plan: PlanFiles, facts: Layers) -> Iterator[str]:
    """Check the throughput with updates against its two limits.

    Per batch, updates cost at most the sum of draining, updating and the time of ``RESTART_FRAMES`` frames.
    They cost at least each layer's cycles for its frames and its update, as a layer does one at a time.
    """
    stated = f"throughput_with_update: {_figure(plan.with_update)}"
    if plan.with_update > plan.flow * (1 + ROUNDING):
        yield f"{stated} is above flow_throughput, {_figure(plan.flow)}"
    sequential = plan.batch / ((plan.batch + RESTART_FRAMES) / plan.flow + plan.drain + plan.update)
    if plan.with_update < sequential * (1 - ROUNDING):
        yield f"{stated} is below {_figure(sequential)}, which is draining and updating one after the other"
    clocks = {device.name: device.clock for device in plan.devices}
    frames = max(plan.batch - FRAMES_DURING_UPDATE, 0)  # the others enter its rows during the update
    updates = {
        layer.name: Fraction(frames * figures["cycles"] + figures["parameter_words"], clocks[layer.device])
        for layer in plan.layers
        if (figures := facts[layer.name].figures)["parameter_words"]
        and plan.throughput * figures["cycles"] <= clocks[layer.device]  # another rule reports the opposite
    }
    slowest = max(updates, key=lambda name: updates[name], default=None)
    limit = plan.batch / updates[slowest] if slowest else plan.throughput
    if slowest and plan.flow * (1 + ROUNDING) >= plan.with_update > limit * (1 + ROUNDING):
        yield f"{stated}, but {slowest} lets {_figure(limit)} through, with its updates"


RATE_RULES: tuple[Callable[[PlanFiles, Layers], Iterator[str]], ...] = (
    *(_limits, _clocks, _utilisation, _throughput, _bound, _flow, _updates),
)
