"""Benchmark of the area of board nodes on an ECP5: nextpnr's count against the estimate of ``boards.area``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

from fanin.base.scratch import write_file
from fanin.boards.area import node_area
from fanin.boards.facts import MEMORIES
from fanin.evaluation.bench.ecp5 import pack
from fanin.evaluation.bench.result import Result
from fanin.glm.facts import PRESETS, GlmConfig
from fanin.hdl.emission import kept_verilog
from fanin.hdl.glm.node import GlmNode
from fanin.wire.aggregation import Encap

MAX_ERROR = 15.0  # per cent

#: The presets of boards, with the packets that boards send, and nodes of other sizes.
CASES: Mapping[str, GlmConfig] = MappingProxyType(
    {
        **{name: replace(PRESETS[name], encap=Encap.UDP) for name in MEMORIES},
        "4 lanes": replace(PRESETS["ecp5-25"], lanes=4, depth=128, encap=Encap.UDP),
        "16 lanes": replace(PRESETS["ecp5-85"], lanes=16),
        "2 lanes, weights decay": replace(PRESETS["ecp5-25"], encap=Encap.UDP, l2=True),
        "8 lanes, weights decay": replace(PRESETS["ecp5-45"], encap=Encap.UDP, l2=True),
        "2 lanes, sparse": replace(PRESETS["ecp5-25"], encap=Encap.UDP, sparse=True),
        "8 lanes, sparse": replace(PRESETS["ecp5-45"], encap=Encap.UDP, sparse=True),
        "8 lanes, L2": PRESETS["ecp5-85"],
        "tiny": replace(PRESETS["tiny"], mac_width=32),
    }
)


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield each case's LUTs, flip-flops, block RAMs and multipliers. Takes minutes per case."""
    text = "# Nodes on an ECP5 by nextpnr's count, as `fanin bench board-area` writes them.\n"
    for name in args.case or CASES:
        config = CASES[name]
        used = pack(kept_verilog(GlmNode(config=config), name="glm_node"), "glm_node")
        predicted = asdict(node_area(config))
        for resource, count in asdict(used).items():
            error = 100 * abs(predicted[resource] - count) / max(1, count)
            note = f"{count:,}; predicted: {predicted[resource]:,}"
            yield Result(
                f"{name}: {resource.replace('_', ' ')}, prediction off by", error, "%", MAX_ERROR, note=note
            )
        text += f'\n["{name}"]\n' + "".join(
            f"{resource} = {count}\n" for resource, count in asdict(used).items()
        )
        if args.output:
            write_file(Path(args.output), text)
