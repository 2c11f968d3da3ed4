"""Plan: a placement of a model's layers on a cluster, its figures, and its computation."""

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
from fanin.planner.search.choices import Choice, all_choices, connection_cost, limited_costs
from fanin.planner.search.conflict import describe_conflict, misfit, smallest_conflict
from fanin.planner.search.instance import Instance, Load, Placement
from fanin.planner.search.limits import Limits
from fanin.planner.search.priorities import choose_priorities
from fanin.planner.search.problem import limits_at
from fanin.planner.search.search import GAP_TOLERANCE, SETTLE_SHARE, Search
from fanin.planner.search.settle import Settlement, settle


@dataclass(frozen=True)
class Plan:
    """Placement with its figures, and a bound on all placements. Times are in seconds."""

    instance: Instance
    placement: Placement
    priorities: dict[int, int]  #: priority of each cut edge
    bound: Fraction  #: upper bound of the throughput of all plans, in frames per second
    split: int = 1  #: degree of the model's model parallelism
    batch: int = 256  #: frames of a batch, for drain and update
    statistics: tuple[tuple[str, object], ...] = ()  #: entries of ``solver`` in plan.json

    @property
    def model(self) -> Model:
        """Model, in which limiting groups are split if model parallelism is used."""
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
        """Frames per second in the flow model, in which FIFOs and neighbours can delay frames."""
        return min(float(self.throughput), 1 / self.timing.period)

    @property
    def gap(self) -> float:
        """Largest possible improvement over this plan, as a share of its throughput."""
        return float(self.bound / self.throughput - 1)

    @property
    def optimal(self) -> bool:
        """True if it is proved that no plan is better."""
        return self.gap <= GAP_TOLERANCE

    @cached_property
    def timing(self) -> Timing:
        """Period, drain and update in the flow model. The computation takes seconds for a large model."""
        return timing_of(self.instance, self.placement, self.batch)

    @property
    def drain(self) -> float:
        """Seconds from a batch's last frame in until its gradient has passed all layers."""
        return self.timing.drain

    @property
    def update(self) -> float:
        """Seconds from the drain's end until every layer has updated its parameters."""
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
        """Bytes that each device stores in DRAM: state, rings of saved maps, and a batch of the host's data."""
        network = network_of(self.instance, self.placement)
        rings = Flow(network, links=links_of(self.instance, self.placement)).rings
        stored_bytes = [0] * len(self.instance.cluster.devices)
        for number, (stage, device) in enumerate(zip(network.stages, self.placement.devices, strict=True)):
            stored_bytes[device] += stage_bytes(stage, rings.get(number, 0), self.batch)
        return tuple(stored_bytes)

    @property
    def used(self) -> int:
        """Number of devices with layers."""
        return len(set(self.placement.devices))


Report = Callable[[float, float], None]


def make_plan(
    instance: Instance,
    limits: Limits,
    *,
    start: Placement | None = None,
    pool: ProcessPoolExecutor | None = None,
    report: Report = lambda best, bound: None,
) -> Plan:
    """Return the best plan that a search within ``limits`` finds.

    ``start``: known placement from which to start.
    ``pool``: processes for searches in parallel.
    ``report``: callback with the best throughput so far and its bound.

    Raises InputError if no plan exists, CheckFailed if none was found.
    """
    begin = time.monotonic()
    reason = misfit(instance)
    if reason:
        raise InputError(reason)
    search = Search(instance, limits, pool, report)
    state = search.run(start)
    if state.placement is None:
        rules = None if state.feasible else smallest_conflict(instance)
        if rules:
            raise InputError(describe_conflict(instance, rules))
        raise CheckFailed(f"no placement found within {limits.seconds:g} s, nor proved that there is none")
    settlement = settle(instance, state.placement, limits, limits.effort * SETTLE_SHARE, begin + limits.seconds)
    placement = simplify_storage(instance, shrink_layers(instance, settlement.placement))
    priorities = choose_priorities(instance, placement)
    assert priorities is not None  # the search accepts no placement without them
    return Plan(
        instance=instance,
        placement=placement,
        priorities=priorities,
        bound=max(Fraction(instance.ticks, max(state.lower_bound, 1)), 1 / instance.period(placement)),
        statistics=_statistics(limits, search, settlement, time.monotonic() - begin),
    )


def _statistics(
    limits: Limits, search: Search, settlement: Settlement, seconds: float
) -> tuple[tuple[str, object], ...]:
    return (
        ("seconds", round(seconds, 1)),
        ("effort", round(search.state.effort + settlement.effort, 1)),
        ("climbs", search.state.attempts),
        ("stopped_by", str(search.state.stopped_by)),
        ("stopped_by_clock", search.state.clock_stopped),
        ("fewest_devices_proved", settlement.devices),
        ("least_cut_bits_proved", settlement.cut_bits),
        ("first_in_order_proved", settlement.order),
        ("time_limit", limits.seconds),
        ("workers", limits.workers),
        ("seed", limits.seed),
        ("gap", limits.gap),
    )


def shrink_layers(instance: Instance, placement: Placement) -> Placement:
    """Return the placement with every layer as small as the period allows: none needs to be faster."""
    period = instance.period(placement)
    choices = []
    model, devices = instance.model, placement.devices
    for node, context, device, choice in zip(
        model.nodes, model.contexts, devices, placement.choices, strict=True
    ):
        part = instance.cluster.devices[device].part
        cycles = int(period * part.clock)
        limits = limited_costs(choice.cost, part)
        candidates = [
            other
            for other in all_choices(node.layer, part, context)
            if other.cost.cycles <= cycles
            and all(a <= b for a, b in zip(limited_costs(other.cost, part), limits, strict=True))
        ]
        choices.append(min(candidates, key=_size, default=choice))
    return replace(placement, choices=tuple(choices))


def simplify_storage(instance: Instance, placement: Placement) -> Placement:
    """Return the placement with parameters moved from DRAM to the chip, layer by layer, where they fit.

    Other layers with parameters in DRAM work on as few frames at a time as the period allows, since a group
    delays its frames.
    """
    period = instance.period(placement)
    choices = list(placement.choices)
    for number, (node, device) in enumerate(zip(instance.model.nodes, placement.devices, strict=True)):
        if choices[number].storage is Storage.CHIP:
            continue
        part, frames = instance.cluster.devices[device].part, choices[number].parallelism.frames
        other_costs = [
            limited_costs(choice.cost, part)
            for other, choice in enumerate(choices)
            if placement.devices[other] == device and other != number
        ]
        connections = instance.loads(placement)[device].connections
        connection_costs = [connections * cost for cost in connection_cost(part)]
        free = [
            limit - sum(loads)
            for limit, *loads in zip(
                limits_at(instance, part, instance.in_ticks(period)),
                connection_costs,
                *other_costs,
                strict=True,
            )
        ]
        candidates = [
            choice
            for choice in all_choices(node.layer, part, instance.model.contexts[number])
            if (choice.storage is Storage.CHIP or choice.parallelism.frames < frames)
            and choice.cost.cycles <= period * part.clock
            and all(
                cost <= free_amount
                for cost, free_amount in zip(limited_costs(choice.cost, part), free, strict=True)
            )
        ]
        choices[number] = min(candidates, key=_simplicity, default=choices[number])
    return replace(placement, choices=tuple(choices))


def overfull_dram(plan: Plan) -> str | None:
    """Return a line on a device whose DRAM is too small for the data that it stores; None if there is none.

    The search cannot check this, since the number of saved frames depends on the timing of all layers.
    """
    for device, stored in zip(plan.instance.cluster.devices, plan.stored, strict=True):
        capacity = device.part.dram_bytes
        if capacity is not None and stored > capacity:
            return f"{device.name}: the plan that was found keeps {stored:,} bytes in DRAM, of {capacity:,}"
    return None


def _simplicity(choice: Choice) -> tuple[object, ...]:
    """Return the sort key of a choice: on chip, then by frames at a time, then by size."""
    return (choice.storage is Storage.DRAM, choice.parallelism.frames, *_size(choice))


def _size(choice: Choice) -> tuple[object, ...]:
    """Return the sort key of a choice: its resources, then all that makes it unique."""
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
    choices = plan.placement.choices
    slowest_layers = [
        number
        for number, (device_index, choice) in enumerate(zip(plan.placement.devices, choices, strict=True))
        if Fraction(choice.cost.cycles, devices[device_index].part.clock) == plan.period
    ]
    slowest = max(slowest_layers, key=lambda number: (choices[number].cost.dsp, -number))
    name, device = plan.model.nodes[slowest].name, devices[plan.placement.devices[slowest]]
    return {"device": device.name, "resource": "cycles", "layer": name}
