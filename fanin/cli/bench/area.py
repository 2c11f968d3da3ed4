"""Area and logic depth of the GLM node, mapped by yosys to UltraScale+ (synth_xilinx -family xcup)."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence

from amaranth.lib import wiring

from fanin.cli.bench.netlist import Area, synthesise
from fanin.cli.bench.result import Result
from fanin.glm import PRESETS, GlmConfig
from fanin.hdl.aggregation.transport import AggTransport
from fanin.hdl.emit import emit_verilog, module_name, snake_case
from fanin.hdl.glm.backward import GradientLane
from fanin.hdl.glm.bank import Bank
from fanin.hdl.glm.engine import Engine
from fanin.hdl.glm.node import GlmNode, make_worker
from fanin.wire.aggregation import Encap, Protocol

# One engine of P4SGD's public RTL, mapped by the same yosys, without DSPs and model memory.
P4SGD_ENGINE = {"LUTs": 49_550, "flip-flops": 78_749}
# P4SGD, table III: a worker of 8 engines after Vivado, PCI Express and HBM included.
P4SGD_WORKER = {"LUTs": 304_000, "flip-flops": 1_100_000, "DSPs": 4096, "RAM": 165}
MEGABIT = 1e6

# Between two registers: 250 MHz on UltraScale+ with room for the wires.
MAX_LUTS, MAX_CHAINS, MAX_CHAIN_BITS = 4, 1, 48


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured; half an hour for a u280 node.

    Depth is that of a mapping for depth, area that of the mapping that P4SGD's engine had.
    """
    config = PRESETS[args.preset]
    engine = Engine(lanes=config.lanes, banks=config.banks, depth=config.depth, fifo_depth=config.sample_fifo)
    one = map_parts(engine, [Bank(lanes=config.lanes), GradientLane(banks=config.banks)], "-nodsp")
    yield from _engine(one, limits=config.lanes == PRESETS["u280"].lanes)
    deep = map_parts(
        engine, [Bank(lanes=config.lanes), GradientLane(banks=config.banks)], "-nodsp", for_depth=True
    )
    yield from depth_figures("engine", deep)
    for protocol, encap in itertools.product(Protocol, Encap):
        transport = AggTransport(
            mac_width=config.mac_width,
            encap=encap,
            values=config.values,
            slots=config.slots,
            protocol=protocol,
        )
        yield from depth_figures(
            f"transport, {encap.upper()}, {protocol.value}", map_parts(transport, [], "", for_depth=True)
        )
    worker = map_parts(make_worker(config), [engine], "", count_parts=False, for_depth=True)
    yield from depth_figures("worker around its engines", worker)
    node = map_parts(GlmNode(config=config), [engine], "", count_parts=False, for_depth=True)
    yield from depth_figures("node around its engines", node)
    around = map_parts(GlmNode(config=config), [engine], "", count_parts=False)
    yield from _total(config, one, around)


def map_parts(
    component: wiring.Component,
    parts: Sequence[wiring.Component],
    options: str,
    *,
    count_parts: bool = True,
    for_depth: bool = False,
) -> Area:
    """Map a component without its shared ``parts``, then each part once, counted as often as it occurs.

    yosys takes minutes for one engine flattened whole, most of them for equal lanes. A part's ports count as
    registers, so its inputs or outputs must come from registers for the depth to be whole. With ``for_depth``
    the mapper puts levels before area.
    """
    name = snake_case(type(component).__name__)
    verilog = emit_verilog(component, name=name)
    names = [module_name(part) for part in parts]
    for part in parts:
        part._MustUse__used = True  # its equals inside ``component`` are elaborated in its place
    options = f"-uram {options}"
    area = synthesise(verilog, name, options=options, levels_first=for_depth, blackboxes=names)
    for part in names:
        count = area.cells.pop(part)
        if count_parts:
            area += synthesise(verilog, part, options=options, levels_first=for_depth).times(count)
    return area


def _engine(area: Area, *, limits: bool) -> Iterator[Result]:
    for name, value in (("LUTs", area.luts), ("flip-flops", area.flip_flops)):
        limit = P4SGD_ENGINE[name] if limits else None
        yield Result(f"engine without DSPs: {name}", value, name, limit, note="P4SGD's engine is the limit")
    yield Result("engine: LUTs as memory", area.lutrams, "LUTs")
    yield Result("engine: model memories and replay FIFO", area.ram_bits / MEGABIT, "Mb")


def depth_figures(name: str, area: Area) -> Iterator[Result]:
    """The depth between two registers, beside its limits."""
    depth = area.depth
    yield Result(f"{name}: LUTs between registers", depth.luts, "levels", MAX_LUTS, note=area.worst)
    yield Result(f"{name}: carry chains between registers", depth.chains, "chains", MAX_CHAINS)
    yield Result(f"{name}: longest carry chain", depth.chain_bits, "bits", MAX_CHAIN_BITS)


def part_figures(part: wiring.Component) -> Iterator[Result]:
    """The depth, mapped for depth, has the limit; what that costs is beside it, and a mapping for area."""
    name = type(part).__name__
    verilog = emit_verilog(part, name=snake_case(name))
    area = synthesise(verilog, snake_case(name), levels_first=True)
    small = synthesise(verilog, snake_case(name))
    yield from depth_figures(name, area)
    yield Result(
        f"{name}: LUTs between registers, mapped for area", small.depth.luts, "levels", note="no limit"
    )
    yield Result(f"{name}: LUTs", area.luts, "LUTs", note=f"mapped for area: {small.luts:,}")
    yield Result(f"{name}: LUTs as memory", area.lutrams, "LUTs")
    yield Result(f"{name}: flip-flops", area.flip_flops, "flip-flops")
    yield Result(f"{name}: block RAM", area.ram_bits, "bits")
    yield Result(f"{name}: DSPs", area.dsps, "DSPs")


def _total(config: GlmConfig, engine: Area, around: Area) -> Iterator[Result]:
    def total(of: str) -> int:
        return config.engines * int(getattr(engine, of)) + int(getattr(around, of))

    paper = P4SGD_WORKER if config.name == "u280" else {}
    for name, of in (
        ("LUTs", "luts"),
        ("LUTs as memory", "lutrams"),
        ("flip-flops", "flip_flops"),
        ("DSPs", "dsps"),
    ):
        note = f"P4SGD's worker, by Vivado, with PCIe and HBM: {paper[name]:,}" if name in paper else ""
        yield Result(f"{config.name} node: {name}", total(of), name, note=note)
    note = f"P4SGD's worker: {paper['RAM']} Mb" if paper else ""
    yield Result(f"{config.name} node: block and ultra RAM", total("ram_bits") / MEGABIT, "Mb", note=note)
