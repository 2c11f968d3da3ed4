"""Fmax of the catalogue's components, placed and routed on an ECP5-85; beside it their depth on UltraScale+."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fanin.cli.bench.area import depth_figures
from fanin.cli.bench.ecp5 import DoesNotFitDevice, place
from fanin.cli.bench.netlist import synthesise
from fanin.cli.bench.result import Result
from fanin.errors import InputError
from fanin.hdl.catalog import emit


@dataclass(frozen=True)
class Part:
    """A component of the catalogue, and the sizes that it is placed with."""

    component: str
    preset: str = "demo"
    settings: Mapping[str, str] = field(default_factory=dict)


#: Of reference width where that fits an ECP5-85; nodes have the sizes of the preset for tests.
PARTS = {
    "GLM node, 8 lanes": Part("glm-node", "tiny"),
    "GLM engine, 16 lanes": Part("glm-engine", "demo", {"lanes": "16", "fifo_depth": "128"}),
    "reducer of 2 engines": Part("activation-reducer", "demo", {"engines": "2"}),
    "loss unit": Part("loss-unit"),
    "adder tree, 64 × 32 bits": Part("adder-tree"),
    "transport, 512 bits": Part("agg-transport"),
    "transport, 64 bits, UDP": Part("agg-transport", "tiny", {"encap": "udp"}),
    "frame transmitter, 512 bits": Part("frame-transmitter"),
    "frame receiver, 512 bits": Part("frame-receiver"),
    "INCEPTIONN's compressor, 256 bits": Part("inceptionn-compressor"),
    "INCEPTIONN's decompressor, 256 bits": Part("inceptionn-decompressor"),
    "INCEPTIONN's NIC, 256 bits": Part("inceptionn-nic"),
    "BFP compressor, 512 bits": Part("bfp-compressor"),
    "BFP decompressor, 512 bits": Part("bfp-decompressor"),
    "ring node, 256 bits": Part("ring-node", "tiny"),
    "ring node, 256 bits, BFP": Part("ring-node", "tiny", {"codec": "bfp", "block": "8"}),
    "NIC of one-sided writes, small": Part("rdma-nic", "tiny"),
    "parameter server, small": Part("param-server", "tiny"),
}


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured, minutes for a part. Raises InputError for an unknown part."""
    names = args.part or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise InputError(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for name in names:
        yield from figures(name, PARTS[name], args.seed)


def figures(name: str, part: Part, seed: int) -> Iterator[Result]:
    """Of one part: its depth, and what nextpnr reaches."""
    verilog, top = (
        emit(part.component, preset=part.preset, settings=part.settings),
        part.component.replace("-", "_"),
    )
    yield from depth_figures(name, synthesise(verilog, top))
    try:
        placed = place(verilog, top, seed=seed)
    except DoesNotFitDevice as error:
        yield Result(f"{name}: Fmax, ECP5-85", 0, "MHz", note=f"does not fit: {str(error).splitlines()[-1]}")
        return
    taken = (
        f"{placed.luts:,} LUT4, {placed.flip_flops:,} flip-flops, {placed.block_rams} block RAMs, "
        f"{placed.multipliers} multipliers"
    )
    yield Result(f"{name}: Fmax, ECP5-85", placed.fmax_mhz, "MHz", note=taken)
