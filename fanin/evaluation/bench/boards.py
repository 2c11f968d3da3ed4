"""Benchmark of AllReduce between simulated boards at 1 Gb/s: latency, and the node's share with its limit.

The boards are RTL up to RGMII, each with its own clocks. The link model has wires, switch and delays of PHYs.
The host is idle, and the switch takes no time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.evaluation.bench.allreduce import STATISTICS
from fanin.evaluation.bench.result import Result
from fanin.glm.facts import MICRO_BATCH, PRESETS, GlmConfig, TrainShape
from fanin.hdl.boards.board import Flow, find_board
from fanin.sim.boards.direct import wire_time
from fanin.sim.boards.events import model_with_events
from fanin.sim.glm.board_allreduce import LINK, Moments, cluster, run_allreduces
from fanin.wire.aggregation import Encap, frame_length

WORKERS = 4
LIMIT_NS = 1500.0  # maximum time in the node, both ways together, at LIMIT_MHZ
LIMIT_MHZ = 100.0
CHUNKS, PRECISION = 16, 8  # long enough that the ACK has left before the next PA arrives
MICRO_BATCHES = 8  # per epoch
WARM_UP_OPERATIONS = 8  # excluded from statistics, because the boards start one after the other

Nanoseconds = npt.NDArray[np.float64]


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures: a build of minutes, and some minutes of simulation."""
    board = find_board(args.board)
    if board.flow is not Flow.OPEN:
        raise InputError(f"{board.name}: cannot be simulated; its parts are the vendor's")
    if args.epochs * MICRO_BATCHES <= WARM_UP_OPERATIONS:
        raise InputError(f"epochs must be above {WARM_UP_OPERATIONS // MICRO_BATCHES}, not {args.epochs}")
    node = replace(PRESETS[board.preset], encap=Encap.UDP)
    boards = cluster(board, model_with_events(board, node), WORKERS)
    yield Result("core", board.core_mhz, "MHz", note=f"{WORKERS} × {board.name}, {node.name}")
    yield Result("link, each way", LINK.delay_ns, "ns", note="cable and two PHYs")
    yield Result("packet on the wire", _wire_ns(node), "ns", note=f"{LINK.gbps:g} Gb/s")
    limit = LIMIT_NS if board.core_mhz == LIMIT_MHZ else None
    single = run_allreduces(boards, _shape(node, MICRO_BATCH), args.epochs).skip(WARM_UP_OPERATIONS)
    yield from _figures("one at a time", single, node, limit)
    in_a_row = run_allreduces(boards, _shape(node, MICRO_BATCHES * MICRO_BATCH), args.epochs).skip(
        WARM_UP_OPERATIONS
    )
    yield from _figures(f"{MICRO_BATCHES} in a row", in_a_row, node, None)


def _shape(node: GlmConfig, batch: int) -> TrainShape:
    return TrainShape(
        node=node,
        workers=WORKERS,
        samples=MICRO_BATCHES * MICRO_BATCH,
        columns=WORKERS * node.engines * node.lanes * CHUNKS,
        batch=batch,
        precision=PRECISION,
    )


def _wire_ns(node: GlmConfig) -> float:
    return wire_time(bytes(frame_length(Encap.UDP, node.values))) / 1000


def split(moments: Moments, wire_ns: float) -> Mapping[str, Nanoseconds]:
    """Split the time of each AllReduce into consecutive parts, in ns, as arrays [worker, operation]."""
    times_ns = {name: times / 1000 for name, times in vars(moments).items()}
    last_agg = times_ns["agg"].max(axis=0)  # at the switch, LINK.delay_ns later
    transit_ns = wire_ns + LINK.delay_ns
    return {
        "node, PA → last word to the MAC": times_ns["sent"] - times_ns["pa"],
        "MAC, last word → preamble": times_ns["agg"] - wire_ns - times_ns["sent"],
        "wire and PHYs, AGG": np.full_like(times_ns["pa"], transit_ns),
        "wait for the other boards": last_agg - times_ns["agg"],
        "wire and PHYs, RESULT": np.full_like(times_ns["pa"], transit_ns),
        "wait for the wire, RESULT": times_ns["result"] - (last_agg + LINK.delay_ns + transit_ns),
        "MAC, last byte → first word": times_ns["received"] - times_ns["result"],
        "node, first word from the MAC → FA": times_ns["fa"] - times_ns["received"],
    }


def _figures(case: str, moments: Moments, node: GlmConfig, limit: float | None) -> Iterator[Result]:
    """Yield the time of an AllReduce, the mean of its parts, and the node's share."""
    total = (moments.fa - moments.pa) / 1000
    parts = split(moments, _wire_ns(node))
    share = sum((part for name, part in parts.items() if name.startswith("node")), np.zeros_like(total))
    for name, statistic in STATISTICS.items():
        yield Result(f"{case}: AllReduce, {name}", statistic(total), "ns")
    yield Result(f"{case}: AllReduce, max", float(total.max()), "ns", note=f"of {total.size:,}")
    for name, part in parts.items():
        yield Result(f"{case}: {name}", float(part.mean()), "ns", note=f"{part.min():.0f} to {part.max():.0f}")
    for name, statistic in STATISTICS.items():
        yield Result(f"{case}: node's share, {name}", statistic(share), "ns")
    yield Result(f"{case}: node's share, max", float(share.max()), "ns", limit)
