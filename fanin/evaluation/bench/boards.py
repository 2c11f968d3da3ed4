"""AllReduce between simulated boards at 1 Gb/s: latency, and the node's share with its limit.

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
LIMIT_NS = 1500.0  # the node's share, both ways, at LIMIT_MHZ
LIMIT_MHZ = 100.0
CHUNKS, PRECISION = 16, 8  # so that the ACK has left before the next PA comes
MICRO_BATCHES = 8  # of an epoch
FIRST = 8  # operations to leave out, because the boards start one after the other

Nanoseconds = npt.NDArray[np.float64]


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures: a build of minutes, and some minutes of simulation."""
    board = find_board(args.board)
    if board.flow is not Flow.OPEN:
        raise InputError(f"{board.name}: cannot be simulated; its parts are the vendor's")
    if args.epochs * MICRO_BATCHES <= FIRST:
        raise InputError(f"epochs must be above {FIRST // MICRO_BATCHES}, not {args.epochs}")
    node = replace(PRESETS[board.preset], encap=Encap.UDP)
    boards = cluster(board, model_with_events(board, node), WORKERS)
    yield Result("core", board.core_mhz, "MHz", note=f"{WORKERS} × {board.name}, {node.name}")
    yield Result("link, each way", LINK.delay_ns, "ns", note="cable and two PHYs")
    yield Result("packet on the wire", _wire_ns(node), "ns", note=f"{LINK.gbps:g} Gb/s")
    limit = LIMIT_NS if board.core_mhz == LIMIT_MHZ else None
    alone = run_allreduces(boards, _shape(node, MICRO_BATCH), args.epochs).skip(FIRST)
    yield from _figures("one at a time", alone, node, limit)
    in_a_row = run_allreduces(boards, _shape(node, MICRO_BATCHES * MICRO_BATCH), args.epochs).skip(FIRST)
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
    at = {name: times / 1000 for name, times in vars(moments).items()}
    last = at["agg"].max(axis=0)  # at the switch, LINK.delay_ns later
    way = wire_ns + LINK.delay_ns
    return {
        "node, PA → last word to the MAC": at["sent"] - at["pa"],
        "MAC, last word → preamble": at["agg"] - wire_ns - at["sent"],
        "wire and PHYs, AGG": np.full_like(at["pa"], way),
        "wait for the other boards": last - at["agg"],
        "wire and PHYs, RESULT": np.full_like(at["pa"], way),
        "wait for the wire, RESULT": at["result"] - (last + LINK.delay_ns + way),
        "MAC, last byte → first word": at["received"] - at["result"],
        "node, first word from the MAC → FA": at["fa"] - at["received"],
    }


def _figures(how: str, moments: Moments, node: GlmConfig, limit: float | None) -> Iterator[Result]:
    """Yield the time of an AllReduce, the mean of its parts, and the node's share."""
    whole = (moments.fa - moments.pa) / 1000
    parts = split(moments, _wire_ns(node))
    share = sum((part for name, part in parts.items() if name.startswith("node")), np.zeros_like(whole))
    for name, statistic in STATISTICS.items():
        yield Result(f"{how}: AllReduce, {name}", statistic(whole), "ns")
    yield Result(f"{how}: AllReduce, max", float(whole.max()), "ns", note=f"of {whole.size:,}")
    for name, part in parts.items():
        yield Result(f"{how}: {name}", float(part.mean()), "ns", note=f"{part.min():.0f} to {part.max():.0f}")
    for name, statistic in STATISTICS.items():
        yield Result(f"{how}: node's share, {name}", statistic(share), "ns")
    yield Result(f"{how}: node's share, max", float(share.max()), "ns", limit)
