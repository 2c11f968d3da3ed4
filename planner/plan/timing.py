"""How long a plan drains and updates: two batches in the flow model."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.cnn import Network, Stage
from fanin.flow.coarse import coarse
from fanin.flow.node import Link, NodeGraph, Sizes
from fanin.flow.predict import prediction
from fanin.flow.sizes import Edge, Flow
from fanin.flow.verdict import frames_that_tell
from fanin.layers.family import WORD_BITS
from fanin.layers.layer import Storage
from fanin.planner.search.instance import Instance, Placement

MOST_FIRINGS = 1 << 16  #: of a frame that are executed one by one; else a frame's rows are in pairs, or
LEAST_GROUPS = 64  #: more finely divided, where no map is large
LINK_SECONDS = 2e-6  #: from a word in to the word out at the next device, its switch included
LINK_WORDS = 8 * 352  #: that a connection holds: frames of 1,408 bytes


@dataclass(frozen=True)
class Timing:
    """In seconds. ``exposed``: by which frames of a batch take longer than so many periods."""

    drain: float
    update: float
    exposed: float


def network_of(instance: Instance, placement: Placement) -> Network:
    """The model, built as it is placed."""
    stages = (
        Stage(node.name, node.layer, choice.parallelism, node.sources, choice.storage)
        for node, choice in zip(instance.model.nodes, placement.choices, strict=True)
    )
    return Network(instance.model.name, tuple(stages))


def timing_of(instance: Instance, placement: Placement, batch: int) -> Timing:
    """Two batches of so many frames, or of more than are under way: what is larger tells nothing new."""
    network = network_of(instance, placement)
    clocks = [instance.cluster.devices[device].part.clock for device in placement.devices]
    clock = max(clocks)  # all cycles are this one's
    period = float(instance.period(placement) * clock)
    sizes = Sizes.of(Flow(network, round(period)))
    links, updates = _links(instance, placement, network, clock), _updates(instance, placement, network)
    frames = min(batch, frames_that_tell(sizes))
    node = NodeGraph(network, sizes, frames, period, links, updates)
    rows = max(stage.layer.output.h for stage in network.stages)
    factors = {stage.name: clock / own for stage, own in zip(network.stages, clocks, strict=True)}
    graph = node.graph.scaled(factors)
    if sum(actor.firings for actor in graph.actors) > MOST_FIRINGS:
        graph = coarse(graph, max(LEAST_GROUPS, rows // 2))
    found = prediction(node, graph, 2)
    exposed = found.exposed
    if frames == batch:  # too few for a period of their own
        exposed += frames * (found.period - period)
    return Timing(found.drain / clock, found.update / clock, max(exposed, 0) / clock)


def _updates(instance: Instance, placement: Placement, network: Network) -> dict[int, float]:
    """Of parameters in DRAM: cycles in which it moves all of a device's, weights and velocities, each way."""
    found: dict[int, float] = {}
    for number, device in enumerate(instance.cluster.devices):
        here = [n for n, on in enumerate(placement.devices) if on == number]
        spilled = [n for n in here if network.stages[n].storage is Storage.DRAM]
        words = 2 * sum(network.stages[n].layer.parameters for n in spilled)
        if spilled:
            found |= dict.fromkeys(spilled, words * WORD_BITS / device.part.dram * device.part.clock)
    return found


def _links(instance: Instance, placement: Placement, network: Network, clock: int) -> dict[Edge, Link]:
    """Of the edges that are cut."""
    on, devices = placement.devices, instance.cluster.devices
    found = {}
    for index, stage in enumerate(network.stages):
        for port, source in enumerate(stage.sources):
            if on[source] != on[index]:
                lanes = network.stages[source].parallelism.po
                rate = min(devices[on[end]].part.network for end in (source, index))
                pace = max(1.0, WORD_BITS * lanes * clock / rate)
                found[index, port] = Link(LINK_SECONDS * clock, pace, max(LINK_WORDS // lanes, 1))
    return found
