"""Rule for DRAM: the data of each device must fit, and the plan must state the right utilisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from fanin.cnn.flow.link import Wiring
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.memory import stage_bytes
from fanin.planner.check.layers import Facts
from fanin.planner.check.rates import differ
from fanin.planner.plan.read import PlanFiles


def memory_rule(plan: PlanFiles, facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield a line for each device whose DRAM is too small, or whose stated utilisation is wrong.

    All other rules must hold, since the frames in a ring follow from the times of all layers.
    """
    network = plan.network
    clock = max(device.clock for device in plan.devices if device.name in plan.layer_devices.values())
    wiring = Wiring(clock, {device.name: device.network for device in plan.devices})
    links = wiring.links(network, [layer.device for layer in plan.layers])
    rings = Flow(network, links=links).rings
    for device in plan.devices:
        if device.dram_bytes is None:
            stored, share = 0, None
        else:
            numbers = [n for n, layer in enumerate(plan.layers) if layer.device == device.name]
            stored = sum(stage_bytes(network.stages[n], rings.get(n, 0), plan.batch) for n in numbers)
            share = Fraction(stored, max(device.dram_bytes, 1))
        if stored > (device.dram_bytes or 0):
            yield f"{device.name}: {stored:,} bytes in DRAM of {device.dram_bytes:,}"
        stated = plan.utilisation[device.name]["dram_bytes"]
        if (stated is None) != (share is None) or (stated is not None and differ(stated, share or Fraction(0))):
            stated_text, expected_text = ("null" if s is None else f"{float(s):,.9g}" for s in (stated, share))
            yield f"{device.name}: utilisation dram_bytes is {stated_text}, not {expected_text}"
