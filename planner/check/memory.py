"""Rule for DRAM: each device's data must fit, and the plan's utilisation must be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.link import Wiring
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.layers.layer import Parallelism, Storage
from fanin.cnn.memory import stage_bytes
from fanin.planner.check.files import LayerEntry, Plan
from fanin.planner.check.layers import Facts, component
from fanin.planner.check.rates import differ


def memory_rule(plan: Plan, facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield devices whose DRAM is too small or whose stated share is wrong. All other rules must hold.

    The number of frames in a ring follows from the times of all layers.
    """
    network = Network("plan", stages(plan))
    clock = max(device.clock for device in plan.devices if device.name in plan.place.values())
    wiring = Wiring(clock, {device.name: device.network for device in plan.devices})
    links = wiring.links(network, [layer.device for layer in plan.layers])
    rings = Flow(network, links=links).rings
    for device in plan.devices:
        if device.dram_bytes is None:
            needed, share = 0, None
        else:
            here = [n for n, layer in enumerate(plan.layers) if layer.device == device.name]
            needed = sum(stage_bytes(network.stages[n], rings.get(n, 0), plan.batch) for n in here)
            share = Fraction(needed, max(device.dram_bytes, 1))
        if needed > (device.dram_bytes or 0):
            yield f"{device.name}: {needed:,} bytes in DRAM of {device.dram_bytes:,}"
        stated = plan.utilisation[device.name]["dram_bytes"]
        if (stated is None) != (share is None) or (stated is not None and differ(stated, share or Fraction(0))):
            said, right = ("null" if s is None else f"{float(s):,.9g}" for s in (stated, share))
            yield f"{device.name}: utilisation dram_bytes is {said}, not {right}"


def stages(plan: Plan) -> tuple[Stage, ...]:
    """Return the plan's layers as stages of a network."""
    numbers = {layer.name: number for number, layer in enumerate(plan.layers)}
    return tuple(_stage(plan, entry, numbers) for entry in plan.layers)


def _stage(plan: Plan, entry: LayerEntry, numbers: Mapping[str, int]) -> Stage:
    sources = tuple(numbers[edge.source] for edge in plan.into[entry.name])
    layer = component(entry, tuple(plan.layers[source].output for source in sources), entry.gradient)
    return Stage(entry.name, layer, Parallelism(**entry.parallelism), sources, Storage(entry.parameters))
