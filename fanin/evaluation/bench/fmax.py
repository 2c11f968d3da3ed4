"""Benchmark of components of the catalogue: Fmax by place and route on an ECP5-85, depth on UltraScale+."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial

from amaranth.lib import wiring

from fanin.base.errors import InputError
from fanin.evaluation.bench.area import depth_figures
from fanin.evaluation.bench.ecp5 import DoesNotFitDevice, place
from fanin.evaluation.bench.netlist import synthesise
from fanin.evaluation.bench.result import Result
from fanin.glm.facts import PRESETS
from fanin.hdl.catalog import CATALOG
from fanin.hdl.emission import kept_verilog
from fanin.hdl.emit import snake_case
from fanin.hdl.param_server.pushes import Pushes
from fanin.hdl.param_server.read_gate import ReadGate
from fanin.hdl.param_server.row import RowMaker
from fanin.hdl.param_server.scanner import Scanner
from fanin.hdl.param_server.streamed_reads import StreamedReads
from fanin.hdl.param_server.update import UpdateLanes
from fanin.hdl.rdma.fetch import PayloadFetch
from fanin.hdl.rdma.receiver import Receiver
from fanin.hdl.rdma.regions import RegionTable
from fanin.hdl.rdma.requester import Requester
from fanin.hdl.rdma.responder import Responder
from fanin.hdl.rdma.store import PayloadStore
from fanin.hdl.rdma.transmitter import Transmitter
from fanin.hdl.ring.engine import RingEngine
from fanin.rdma.facts import RdmaConfig
from fanin.ring.facts import RingConfig


def _entry(name: str, preset: str = "demo", **settings: str) -> Callable[[], wiring.Component]:
    """Return a function that makes a component of the catalogue."""
    return partial(CATALOG[name].build, PRESETS[preset], settings)


#: For 1 Gb/s: frames of 1,024 bytes.
_SMALL_RING = RingConfig(
    lanes=2, frame_words=128, slice_frames=2, buffer_frames=4, replay_frames=4, address_width=32
)
_RDMA = RdmaConfig()
_PATH = {"width": _RDMA.width, "address_width": _RDMA.address_width}

#: Measured components by name, of reference width if that fits an ECP5-85. Nodes have the preset for tests.
PARTS: dict[str, Callable[[], wiring.Component]] = {
    "GLM node, 8 lanes": _entry("glm-node", "tiny"),
    "GLM engine, 16 lanes": _entry("glm-engine", lanes="16", fifo_depth="128"),
    "sparse GLM engine, 16 lanes": _entry("glm-engine-sparse", lanes="16", fifo_depth="128"),
    "reducer of 2 engines": _entry("activation-reducer", engines="2"),
    "loss unit": _entry("loss-unit"),
    "adder tree, 64 × 32 bits": _entry("adder-tree"),
    "transport, 512 bits": _entry("agg-transport"),
    "transport, 64 bits, UDP": _entry("agg-transport", "tiny", encap="udp"),
    "frame transmitter, 512 bits": _entry("frame-transmitter"),
    "frame receiver, 512 bits": _entry("frame-receiver"),
    "INCEPTIONN's compressor, 256 bits": _entry("inceptionn-compressor"),
    "INCEPTIONN's decompressor, 256 bits": _entry("inceptionn-decompressor"),
    "INCEPTIONN's NIC, 256 bits": _entry("inceptionn-nic"),
    "BFP compressor, 512 bits": _entry("bfp-compressor"),
    "BFP decompressor, 512 bits": _entry("bfp-decompressor"),
    "MX compressor, 512 bits": _entry("mx-compressor"),
    "MX decompressor, 512 bits": _entry("mx-decompressor"),
    "bfloat16 compressor, 512 bits": _entry("half-compressor"),
    "bfloat16 decompressor, 512 bits": _entry("half-decompressor"),
    "binary16 compressor, 512 bits": _entry("half-compressor", codec="fp16"),
    "binary16 decompressor, 512 bits": _entry("half-decompressor", codec="fp16"),
    "ring engine, 64 bits": partial(RingEngine, config=_SMALL_RING),
    "ring node, 256 bits": _entry("ring-node", "tiny"),
    "ring node, 256 bits, BFP": _entry("ring-node", "tiny", codec="bfp", block="8"),
    "RDMA node, small": _entry("rdma-nic", "tiny"),
    "parameter server, small": _entry("param-server", "tiny"),
    "payload fetch, 512 bits": partial(PayloadFetch, **_PATH, depth=_RDMA.fetch_words),
    "payload store, 512 bits": partial(PayloadStore, **_PATH),
    "RDMA transmitter, 512 bits": partial(Transmitter, width=_RDMA.width),
    "RDMA receiver, 512 bits": partial(Receiver, config=_RDMA),
    "requester, 16 queue pairs": partial(Requester, config=_RDMA),
    "responder, 16 queue pairs": partial(Responder, config=_RDMA),
    "region table, 16 regions": partial(RegionTable, config=_RDMA),
    "scanner, 16 workers": partial(Scanner, config=_RDMA),
    "row maker, 512 bits": partial(RowMaker, config=_RDMA),
    "pushes, 16 workers": partial(Pushes, config=_RDMA),
    "read gate, 512 bits": partial(ReadGate, config=_RDMA),
    "streamed reads, 512 bits": partial(StreamedReads, config=_RDMA),
    "update lanes, 512 bits": partial(UpdateLanes, lanes=_RDMA.width // 32),
}


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured, minutes for a part. Raises InputError for an unknown part."""
    names = args.part or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise InputError(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for name in names:
        yield from figures(name, PARTS[name](), args.seed)


def figures(name: str, component: wiring.Component, seed: int) -> Iterator[Result]:
    """Yield the depth of one part, and the clock that nextpnr reaches."""
    top = snake_case(type(component).__name__)
    verilog = kept_verilog(component, name=top)
    yield from depth_figures(name, synthesise(verilog, top))
    try:
        placement = place(verilog, top, seed=seed)
    except DoesNotFitDevice as error:
        yield Result(f"{name}: Fmax, ECP5-85", 0, "MHz", note=f"does not fit: {str(error).splitlines()[-1]}")
        return
    resources = (
        f"{placement.luts:,} LUT4, {placement.flip_flops:,} flip-flops, {placement.block_rams} block RAMs, "
        f"{placement.multipliers} multipliers"
    )
    yield Result(f"{name}: Fmax, ECP5-85", placement.fmax_mhz, "MHz", note=resources)
