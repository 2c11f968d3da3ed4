"""Benchmark of AllReduce latency in both protocols: from the transport's input of a PA to its output of the FA.

A PA is a micro-batch's partial activations, an FA the sum of all workers' PAs.

Cycles are the RTL's, the time between nodes and switch is the link model's. The nodes have the smallest engine,
because only the transport is measured. They train, so that PAs have the timing of a training.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fanin.base.limits import CLOCK_MHZ
from fanin.evaluation.bench import ALLREDUCE_LOSSES, ALLREDUCE_WORKERS, nodes
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.nodes import CYCLE_NS
from fanin.evaluation.bench.result import Result
from fanin.evaluation.origins.graph import identifier
from fanin.glm.facts import MICRO_BATCH, PRESETS, GlmConfig, TrainShape
from fanin.link import LinkConfig
from fanin.sim.glm.course import TrainRun
from fanin.sim.network import NetworkConfig
from fanin.wire.aggregation import Protocol, frame_length

NAME = "allreduce"
STATISTICS: dict[str, Callable[[npt.NDArray[np.float64]], float]] = {
    "mean": lambda ns: float(np.mean(ns)),
    "p50": lambda ns: float(np.percentile(ns, 50)),
    "p99": lambda ns: float(np.percentile(ns, 99)),
}
BATCH, MINI_BATCHES = 8 * MICRO_BATCH, 500  # 8 PAs, then a wait for the last FA; 4,000 operations a node
FEW_SLOTS = (8, 16)  # numbers of slots for the measured rate
BURST = 64  # consecutive PAs, to measure the rate with few slots


@dataclass(frozen=True)
class Point:
    """Measured setup: a number of nodes that use a protocol."""

    protocol: Protocol
    workers: int

    @property
    def node(self) -> GlmConfig:
        """Node with the transport of a u280 node and one small engine."""
        return replace(PRESETS["u280"], engines=1, lanes=8, depth=4, sample_fifo=512, protocol=self.protocol)

    def run(self, network: NetworkConfig, *, batch: int, mini_batches: int, precision: int) -> TrainRun:
        """Train with one column per lane of the nodes, so that a PA follows every ``precision`` cycles."""
        columns, samples = self.node.lanes * self.workers, batch * mini_batches
        shape = TrainShape(
            node=self.node,
            workers=self.workers,
            samples=samples,
            columns=columns,
            batch=batch,
            precision=precision,
        )
        return nodes.train(shape, network)

    def latencies(self, run: TrainRun) -> npt.NDArray[np.float64]:
        """Return the latency of every operation of every node, in ns. FAs arrive in the order of their PAs."""
        node_events = (nodes.events(run, worker) for worker in range(self.workers))
        return np.concatenate([events["fa"] - events["pa"] for events in node_events]) * CYCLE_NS

    def link_and_switch_ns(self, network: NetworkConfig) -> float:
        """Return the time of links and switch in an AllReduce without loss, in ns, up to whole cycles."""
        frame = network.link.wire_time(frame_length(self.node.encap, self.node.values)) / 1000
        return math.ceil((2 * (network.link.delay_ns + frame) + network.switch_ns) / CYCLE_NS) * CYCLE_NS


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured; write the latencies as JSON and picture."""
    paths = outputs(NAME, args.output)
    network = NetworkConfig()
    yield from _setting(network)
    losses = ALLREDUCE_LOSSES if args.loss is None else [args.loss]
    figures = {loss: _figure(loss, network) for loss in losses}
    for workers in [args.workers] if args.workers else ALLREDUCE_WORKERS:
        for protocol in Protocol:
            point = Point(protocol, workers)
            for loss, figure in figures.items():
                yield from _latency(point, loss, figure, network)
            if workers == ALLREDUCE_WORKERS[0]:
                yield from _few_slots(point, network)
    write(list(figures.values()), paths)


def _setting(network: NetworkConfig) -> Iterator[Result]:
    node = Point(Protocol.P4SGD, 1).node
    for name, value, unit in (
        ("clock", CLOCK_MHZ, "MHz"),
        ("link, each way", network.link.delay_ns, "ns"),
        ("link rate", network.link.gbps, "Gb/s"),
        ("switch", network.switch_ns, "ns"),
        ("longest timeout", network.ceiling_ns, "ns"),
        ("slots", node.slots, ""),
        ("operations in a row", BATCH // MICRO_BATCH, ""),
        ("operations of a node", BATCH // MICRO_BATCH * MINI_BATCHES, ""),
    ):
        yield Result(f"{NAME}: {name}", value, unit)


def _figure(loss: float, network: NetworkConfig) -> Figure:
    figure = Figure(NAME, f"{100 * loss:g} % loss", "workers", "AllReduce latency, ns", log_y=True)
    figure.over, figure.apart = Protocol.SWITCHML.value, True  # without loss, all series coincide
    figure.note = (
        f"PA taken → FA handed on. RTL cycles at {CLOCK_MHZ:g} MHz; links {network.link.gbps:g} Gb/s, "
        f"{network.link.delay_ns:g} ns; switch {network.switch_ns:g} ns; timeout by round trips; "
        f"{BATCH // MICRO_BATCH} operations in a row."
    )
    return figure


def _latency(point: Point, loss: float, figure: Figure, network: NetworkConfig) -> Iterator[Result]:
    """Yield latencies of a point at a loss rate, and packets of an operation; add points to ``figure``."""
    lossy = replace(network, link=LinkConfig(drop=loss))
    run = point.run(lossy, batch=BATCH, mini_batches=MINI_BATCHES, precision=4)
    latencies = point.latencies(run)
    id_prefix = identifier(NAME, f"loss {100 * loss:g}", point.protocol.value, f"workers {point.workers}")
    for name, statistic in STATISTICS.items():
        result = figure.add(f"{name}, {point.protocol.value}", point.workers, statistic(latencies))
        figure_id = identifier(id_prefix, f"{name}_ns")
        yield replace(result, name=f"{result.name}, {figure.title}", unit="ns", id=figure_id)
    if not loss:
        link_ns, mean_ns = point.link_and_switch_ns(network), float(np.mean(latencies))
        name = f"{NAME}: {point.protocol.value}, workers {point.workers}"
        note = "inputs: they are stated, not measured"
        yield Result(f"{name}: links and switch", link_ns, "ns", note=note, id=f"{id_prefix}.given_ns")
        yield Result(f"{name}: nodes", mean_ns - link_ns, "ns", note="RTL", id=f"{id_prefix}.node_ns")
    packets = sum(run.raw.frames.values()) / len(latencies)
    name = f"{NAME}: packets, {point.protocol.value}, workers {point.workers}, {figure.title}"
    yield Result(name, packets, "a node", note="sent for an operation")


def _few_slots(point: Point, network: NetworkConfig) -> Iterator[Result]:
    """Yield the time between two uses of a slot, for bursts of operations with too few slots."""
    for slots in FEW_SLOTS:
        few_slots_network = replace(network, slots=slots)
        run = point.run(few_slots_network, batch=BURST * MICRO_BATCH, mini_batches=4, precision=1)
        pa_cycles = nodes.events(run, 0)["pa"].reshape(-1, BURST)
        held_ns = float(np.mean(pa_cycles[:, slots:] - pa_cycles[:, :-slots])) * CYCLE_NS
        name = f"{NAME}: {point.protocol.value}, {slots} slots"
        yield Result(f"{name}, a slot is held", held_ns, "ns")
        yield Result(f"{name}, operations", 1000 * slots / held_ns, "per µs")
