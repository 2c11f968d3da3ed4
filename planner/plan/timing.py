"""Timing of a plan by the flow model: period, drain and update."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.coarse import coarse_if_large
from fanin.cnn.flow.link import Edge, Link, Wiring
from fanin.cnn.flow.node import NodeGraph, Sizes
from fanin.cnn.flow.predict import Prediction, prediction
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.flow.verdict import conclusive_frames
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Storage
from fanin.planner.search.instance import Instance, Placement

ROUNDING = 1e-9  #: relative tolerance of times in cycles, which are sums of floats


@dataclass(frozen=True)
class Timing:
    """Times of a plan in seconds."""

    period: float  #: time per frame: the plan's, or a longer one if the build delays frames
    drain: float  #: time from a batch's last frame in until its gradient has passed all layers
    update: float  #: time from the drain's end until every layer has updated its parameters
    exposed: float  #: time of a batch beyond one period per frame


def network_of(instance: Instance, placement: Placement) -> Network:
    """Return the network with the parallelism and storage of a placement."""
    stages = (
        Stage(node.name, node.layer, choice.parallelism, node.sources, choice.storage)
        for node, choice in zip(instance.model.nodes, placement.choices, strict=True)
    )
    return Network(instance.model.name, tuple(stages))


def links_of(instance: Instance, placement: Placement) -> dict[Edge, Link]:
    """Return the link of each cut edge, in cycles of the fastest clock."""
    rates: dict[Hashable, float] = {
        number: device.part.network for number, device in enumerate(instance.cluster.devices)
    }
    return Wiring(max(_clocks(instance, placement)), rates).links(
        network_of(instance, placement), placement.devices
    )


def _clocks(instance: Instance, placement: Placement) -> list[int]:
    """Return the clock of each layer's device."""
    return [instance.cluster.devices[device].part.clock for device in placement.devices]


def timing_of(instance: Instance, placement: Placement, batch: int) -> Timing:
    """Return the timing of a placement, from an execution of two batches in the flow model.

    A batch of more frames than can be in flight is executed in part: ``conclusive_frames``.

    Raises InputError of one line for a build that would deadlock.
    """
    network = network_of(instance, placement)
    clocks = _clocks(instance, placement)
    clock = max(clocks)  # all cycles are of this clock
    planned = float(instance.period(placement) * clock)
    sizes = Sizes.of(Flow(network, round(planned), links_of(instance, placement)))
    updates = _updates(instance, placement, network)
    rows = max(stage.layer.output.h for stage in network.stages)
    factors = {
        stage.name: clock / stage_clock for stage, stage_clock in zip(network.stages, clocks, strict=True)
    }

    def flow(frames: int) -> Prediction:
        """Return the prediction for two batches of ``frames`` frames."""
        node = NodeGraph(network, sizes, frames, planned, updates)
        return prediction(node, coarse_if_large(node.graph.scaled(factors), rows), 2)

    full_batch = conclusive_frames(sizes)
    steady = flow(full_batch)
    period = steady.period if steady.period > planned * (1 + ROUNDING) else planned
    predicted, exposed = steady, steady.exposed
    if batch < full_batch:  # too few frames for a period of their own
        predicted = flow(batch)
        exposed = batch * (predicted.period - period) + predicted.exposed
    return Timing(period / clock, predicted.drain / clock, predicted.update / clock, max(exposed, 0) / clock)


def _updates(instance: Instance, placement: Placement, network: Network) -> dict[int, float]:
    """Return the cycles in which DRAM moves all spilled weights and velocities of a device, by stage."""
    updates: dict[int, float] = {}
    for number, device in enumerate(instance.cluster.devices):
        nodes = [n for n, placed_on in enumerate(placement.devices) if placed_on == number]
        spilled = [n for n in nodes if network.stages[n].storage is Storage.DRAM]
        words = 2 * sum(network.stages[n].layer.parameters for n in spilled)
        if spilled:
            updates |= dict.fromkeys(spilled, words * WORD_BITS / device.part.dram * device.part.clock)
    return updates
