"""A plan, which is a placement and its figures, and its computation."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from fanin.base.errors import CheckFailed, InputError
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.layers.layer import Storage
from fanin.cnn.memory import stage_bytes
from fanin.planner.model.graph import Model
from fanin.planner.plan.timing import Timing, links_of, network_of, timing_of
from fanin.planner.search.choices import Choice, all_choices, connection_takes, constrained
from fanin.planner.search.conflict import in_words, misfit, smallest_conflict
from fanin.planner.search.instance import Instance, Load, Placement
from fanin.planner.search.limits import Limits
from fanin.planner.search.priorities import choose_priorities
from fanin.planner.search.problem import limits_at
from fanin.planner.search.search import SAME, SETTLING, Search
from fanin.planner.search.settle import Settled, settle


@dataclass(frozen=True)
class Plan:
    """A placement and its proof. Times are in seconds, bandwidths in bits per second."""

    instance: Instance
    placement: Placement
    priorities: dict[int, int]  #: by cut edge
    bound: Fraction  #: upper bound of the throughput of all plans, in frames per second
    split: int = 1  #: model parallelism of the model
    batch: int = 256
    statistics: tuple[tuple[str, object], ...] = ()

    @property
    def model(self) -> Model:
        """The model, split if model parallelism is used."""
        return self.instance.model

    @property
    def period(self) -> Fraction:
        """Seconds per frame."""
        return self.instance.period(self.placement)

    @property
    def throughput(self) -> Fraction:
        """Frames per second while frames stream, limited by layers, DRAM and network."""
        return 1 / self.period

    @property
    def flow_throughput(self) -> float:
        """Frames per second in the flow model, at most ``throughput``: FIFOs and neighbours can delay
        frames.
        """
        return min(float(self.throughput), 1 / self.timing.period)

    @property
    def gap(self) -> float:
        """Largest possible improvement over this plan, as a share of its throughput."""
        return float(self.bound / self.throughput - 1)

    @property
    def optimal(self) -> bool:
        """True if it is proved that no plan is better."""
        return self.gap <= SAME

    @cached_property
    def timing(self) -> Timing:
        """Drain and update times in the flow model, computed in seconds for a large model."""
        return timing_of(self.instance, self.placement, self.batch)

    @property
    def drain(self) -> float:
        """Seconds from a batch's last frame in until its gradient has passed all layers."""
        return self.timing.drain

    @property
    def update(self) -> float:
        """Seconds from the drain's end until every layer has updated its parameters, one per cycle."""
        return self.timing.update

    @property
    def throughput_with_update(self) -> float:
        """Frames per second with an update of all parameters after every batch."""
        return self.batch / (self.batch * self.timing.period + self.timing.exposed)

    @property
    def loads(self) -> tuple[Load, ...]:
        """Load of each device."""
        return self.instance.loads(self.placement)

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """Bytes that each device stores in DRAM: state, rings of saved maps, a batch from and for the host."""
        network = network_of(self.instance, self.placement)
        rings = Flow(network, links=links_of(self.instance, self.placement)).rings
        found = [0] * len(self.instance.cluster.devices)
        for number, (stage, device) in enumerate(zip(network.stages, self.placement.devices, strict=True)):
            found[device] += stage_bytes(stage, rings.get(number, 0), self.batch)
        return tuple(found)

    @property
    def used(self) -> int:
        """Number of devices with layers."""
        return len(set(self.placement.devices))


Say = Callable[[float, float], None]


def make_plan(
    instance: Instance,
    limits: Limits,
    *,
    start: Placement | None = None,
    pool: ProcessPoolExecutor | None = None,
    say: Say = lambda best, bound: None,
) -> Plan:
    """Return the best plan within limits. Raises InputError if none exists, CheckFailed if none was found."""
    begin = time.monotonic()
    complaint = misfit(instance)
    if complaint:
        raise InputError(complaint)
    search = Search(instance, limits, pool, say)
    found = search.run(start)
    if found.placement is None:
        rules = None if found.feasible else smallest_conflict(instance)
        if rules:
            raise InputError(in_words(instance, rules))
        raise CheckFailed(f"no placement found within {limits.seconds:g} s, nor proved that there is none")
    settled = settle(instance, found.placement, limits, limits.effort * SETTLING, begin + limits.seconds)
    placement = on_chip(instance, hand_back(instance, settled.placement))
    priorities = choose_priorities(instance, placement)
    assert priorities is not None  # the search accepts no placement without them
    return Plan(
        instance=instance,
        placement=placement,
        priorities=priorities,
        bound=max(Fraction(instance.ticks, max(found.least, 1)), 1 / instance.period(placement)),
        statistics=_statistics(limits, search, settled, time.monotonic() - begin),
    )


def _statistics(
    limits: Limits, search: Search, settled: Settled, seconds: float
) -> tuple[tuple[str, object], ...]:
    return (
        ("seconds", round(seconds, 1)),
        ("effort", round(search.found.effort + settled.effort, 1)),
        ("climbs", search.found.tries),
        ("stopped_by", str(search.found.stopped_by)),
        ("stopped_by_clock", search.found.clock_stopped),
        ("fewest_devices_proved", settled.devices),
        ("least_cut_bits_proved", settled.cut_bits),
        ("first_in_order_proved", settled.order),
        ("time_limit", limits.seconds),
        ("workers", limits.workers),
        ("seed", limits.seed),
        ("gap", limits.gap),
    )


def hand_back(instance: Instance, placement: Placement) -> Placement:
    """Make every layer as small as the period allows, since none needs to be faster than the slowest."""
    period = instance.period(placement)
    choices = []
    model, devices = instance.model, placement.devices
    for node, context, device, choice in zip(
        model.nodes, model.contexts, devices, placement.choices, strict=True
    ):
        part = instance.cluster.devices[device].part
        cycles = int(period * part.clock)
        limits = constrained(choice.cost, part)
        fitting = [
            other
            for other in all_choices(node.layer, part, context)
            if other.cost.cycles <= cycles
            and all(a <= b for a, b in zip(constrained(other.cost, part), limits, strict=True))
        ]
        choices.append(min(fitting, key=_size, default=choice))
    return replace(placement, choices=tuple(choices))


def on_chip(instance: Instance, placement: Placement) -> Placement:
    """Move parameters from DRAM to the chip, layer by layer, if their device has room."""
    period = instance.period(placement)
    choices = list(placement.choices)
    for number, (node, device) in enumerate(zip(instance.model.nodes, placement.devices, strict=True)):
        if choices[number].storage is Storage.CHIP:
            continue
        part = instance.cluster.devices[device].part
        others = [
            constrained(choice.cost, part)
            for other, choice in enumerate(choices)
            if placement.devices[other] == device and other != number
        ]
        connections = instance.loads(placement)[device].connections
        taken = [connections * each for each in connection_takes(part)]
        room = [
            limit - sum(loads)
            for limit, *loads in zip(
                limits_at(instance, part, instance.in_ticks(period)), taken, *others, strict=True
            )
        ]
        fitting = [
            choice
            for choice in all_choices(node.layer, part, instance.model.contexts[number])
            if choice.storage is Storage.CHIP
            and choice.cost.cycles <= period * part.clock
            and all(cost <= left for cost, left in zip(constrained(choice.cost, part), room, strict=True))
        ]
        choices[number] = min(fitting, key=_size, default=choices[number])
    return replace(placement, choices=tuple(choices))


def overfull_dram(plan: Plan) -> str | None:
    """Return one line about a device whose DRAM is too small for the data it stores; None without one.

    The search cannot check this: the number of waiting frames depends on the timing of all layers.
    """
    for device, stored in zip(plan.instance.cluster.devices, plan.stored, strict=True):
        there = device.part.dram_bytes
        if there is not None and stored > there:
            return f"{device.name}: the plan that was found keeps {stored:,} bytes in DRAM, of {there:,}"
    return None


def _size(choice: Choice) -> tuple[object, ...]:
    cost, p = choice.cost, choice.parallelism
    dram = cost.dram_read + cost.dram_write
    return (
        cost.dsp,
        cost.luts,
        cost.ram_bits,
        cost.ram_blocks,
        dram,
        p.pi + p.po,
        p.pic * p.poc * p.ph,
        p,
        choice.storage,
    )


def bottleneck(plan: Plan) -> dict[str, str]:
    """Return the limit of the period: device and resource, and the layer if the resource is its cycles."""
    devices = plan.instance.cluster.devices
    for device, load in zip(devices, plan.loads, strict=True):
        for resource, bits, rate in (
            ("dram_read", load.dram_read, device.part.dram),
            ("dram_write", load.dram_write, device.part.dram),
            ("network", load.network, device.part.network),
        ):
            if bits and Fraction(bits, rate) == plan.period:
                return {"device": device.name, "resource": resource}
    # Of equally slow layers the largest: smaller ones were slowed down because they need not be faster.
    _, last = max(
        (choice.cost.dsp, -number)
        for number, (on, choice) in enumerate(zip(plan.placement.devices, plan.placement.choices, strict=True))
        if Fraction(choice.cost.cycles, devices[on].part.clock) == plan.period
    )
    slowest = -last
    name, device = plan.model.nodes[slowest].name, devices[plan.placement.devices[slowest]]
    return {"device": device.name, "resource": "cycles", "layer": name}
