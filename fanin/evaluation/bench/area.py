"""Benchmark of area and logic depth of the GLM node, and of the ring node's area, on UltraScale+.

yosys maps the nodes (synth_xilinx -family xcup).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from amaranth.lib import wiring

from fanin.evaluation.bench import ring_area
from fanin.evaluation.bench.netlist import Area, Goal, synthesise
from fanin.evaluation.bench.result import Result
from fanin.glm.facts import PRESETS, GlmConfig
from fanin.hdl.aggregation.transport import AggTransport
from fanin.hdl.emission import kept_verilog
from fanin.hdl.emit import module_name, snake_case
from fanin.hdl.glm.backward import GradientLane
from fanin.hdl.glm.bank import Bank
from fanin.hdl.glm.engine import Engine
from fanin.hdl.glm.node import GlmNode, make_worker
from fanin.wire.aggregation import Encap, Protocol

# One engine of P4SGD's public RTL, mapped by the same yosys, without DSPs and model memory.
P4SGD_ENGINE = {"LUTs": 49_550, "flip-flops": 78_749}
# P4SGD, table III: a worker of 8 engines after Vivado, PCI Express and HBM included.
P4SGD_WORKER = {"LUTs": 304_000, "flip-flops": 1_100_000, "DSPs": 4096, "RAM": 165}
P4SGD_ENGINES = {"LUTs": 188_000, "flip-flops": 904_000}  # its line of the engines
MEGABIT = 1e6

# Limits between two registers, for 250 MHz on UltraScale+ including wires.
MAX_LUTS, MAX_CHAINS, MAX_CHAIN_BITS = 4, 1, 48


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured; a quarter of an hour for a u280 node, minutes for a ring's."""
    if args.part in (None, "glm"):
        yield from _glm(PRESETS[args.preset])
    if args.part in (None, "ring"):
        yield from ring_area.measure()


def _glm(config: GlmConfig) -> Iterator[Result]:
    engine, lanes = _make_engine(config)
    engine_area = map_parts(engine, lanes, "-nodsp", goal=Goal.AREA)
    yield from _engine_figures(engine_area, limits=config.lanes == PRESETS["u280"].lanes)
    yield from _engines_figures(config, engine_area)
    yield from depth_figures("engine", map_parts(engine, lanes, "-nodsp"))
    l2_engine, l2_lanes = _make_engine(replace(config, l2=True))
    l2_area = map_parts(l2_engine, l2_lanes, "-nodsp", goal=Goal.AREA)
    yield Result("engine with L2 regularisation: LUTs", l2_area.luts, "LUTs")
    yield Result("engine with L2 regularisation: flip-flops", l2_area.flip_flops, "flip-flops")
    yield from depth_figures("engine with L2 regularisation", map_parts(l2_engine, l2_lanes, "-nodsp"))
    for protocol, encap in itertools.product(Protocol, Encap):
        transport = AggTransport(
            mac_width=config.mac_width,
            encap=encap,
            values=config.values,
            slots=config.slots,
            protocol=protocol,
        )
        yield from depth_figures(f"transport, {encap.upper()}, {protocol.value}", map_parts(transport, [], ""))
    worker = map_parts(make_worker(config), [engine], "", count_parts=False)
    yield from depth_figures("worker around its engines", worker)
    node = GlmNode(config=config)
    yield from depth_figures("node around its engines", map_parts(node, [engine], "", count_parts=False))
    surrounding = map_parts(GlmNode(config=config), [engine], "", count_parts=False, goal=Goal.AREA)
    yield from _node_figures(config, engine_area, surrounding)


def _make_engine(config: GlmConfig) -> tuple[Engine, list[wiring.Component]]:
    """Return an engine of the node, and its repeated parts."""
    engine = Engine(
        lanes=config.lanes,
        banks=config.banks,
        depth=config.depth,
        fifo_depth=config.sample_fifo,
        l2=config.l2,
    )
    return engine, [Bank(lanes=config.lanes), GradientLane(banks=config.banks, l2=config.l2)]


def map_parts(
    component: wiring.Component,
    parts: Sequence[wiring.Component],
    options: str,
    *,
    count_parts: bool = True,
    goal: Goal = Goal.DEPTH,
) -> Area:
    """Map a component without its shared ``parts``, then map each part once and count its occurrences.

    yosys takes minutes for one flattened engine, most of them for identical lanes. Paths end at a part's ports.
    The depth is right only if each port has a register on one side.
    """
    name = snake_case(type(component).__name__)
    verilog = kept_verilog(component, name=name)
    names = [module_name(part) for part in parts]
    for part in parts:
        part._MustUse__used = True  # its equals inside ``component`` are elaborated in its place
    options = f"-uram {options}"
    area = synthesise(verilog, name, options=options, blackboxes=names, goal=goal)
    for part in names:
        count = area.cells.pop(part)
        if count_parts:
            area += synthesise(verilog, part, options=options, goal=goal).times(count)
    return area


def _engine_figures(area: Area, *, limits: bool) -> Iterator[Result]:
    for name, value in (("LUTs", area.luts), ("flip-flops", area.flip_flops)):
        limit = P4SGD_ENGINE[name] if limits else None
        note = "P4SGD's engine is the limit"
        yield Result(f"engine without DSPs: {name}", value, name, limit, note=note)
    yield Result("engine: LUTs as memory", area.lutrams, "LUTs")
    yield Result("engine: model memories and replay FIFO", area.ram_bits / MEGABIT, "Mb")


def _engines_figures(config: GlmConfig, engine: Area) -> Iterator[Result]:
    """Yield the area of a node's engines, as in P4SGD's table III without transport, PCI Express and HBM."""
    name, id_prefix = f"{config.engines} engines without DSPs", f"area.glm.{config.name}.engines"
    paper = P4SGD_ENGINES if config.name == "u280" else {}
    for primitive, id_part, value in (
        ("LUTs", "luts", engine.luts + engine.lutrams),
        ("flip-flops", "flip_flops", engine.flip_flops),
    ):
        note = f"P4SGD's, by Vivado: {paper[primitive]:,}, and 4,096 DSPs" if paper else ""
        yield Result(
            f"{name}: {primitive}", config.engines * value, primitive, note=note, id=f"{id_prefix}.{id_part}"
        )


def depth_figures(name: str, area: Area) -> Iterator[Result]:
    """Yield the depth between two registers, with its limits."""
    depth = area.depth
    yield Result(f"{name}: LUTs between registers", depth.luts, "levels", MAX_LUTS, note=area.worst)
    yield Result(f"{name}: carry chains between registers", depth.chains, "chains", MAX_CHAINS)
    yield Result(f"{name}: longest carry chain", depth.chain_bits, "bits", MAX_CHAIN_BITS)


def part_figures(part: wiring.Component, name: str = "") -> Iterator[Result]:
    """Yield a part's depth, mapped for depth, with its limits, and its area, mapped for area."""
    top = snake_case(type(part).__name__)
    name = name or type(part).__name__
    verilog = kept_verilog(part, name=top)
    depth_mapped, area_mapped = synthesise(verilog, top), synthesise(verilog, top, goal=Goal.AREA)
    yield from depth_figures(name, depth_mapped)
    yield Result(f"{name}: LUTs", area_mapped.luts, "LUTs", note=f"mapped for depth: {depth_mapped.luts:,}")
    yield Result(f"{name}: LUTs as memory", area_mapped.lutrams, "LUTs")
    yield Result(f"{name}: flip-flops", area_mapped.flip_flops, "flip-flops")
    yield Result(f"{name}: block RAM", area_mapped.ram_bits, "bits")
    yield Result(f"{name}: DSPs", area_mapped.dsps, "DSPs")


def _node_figures(config: GlmConfig, engine: Area, surrounding: Area) -> Iterator[Result]:
    def total(area_attribute: str) -> int:
        return config.engines * int(getattr(engine, area_attribute)) + int(getattr(surrounding, area_attribute))

    paper = P4SGD_WORKER if config.name == "u280" else {}
    for resource, attribute in (
        ("LUTs", "luts"),
        ("LUTs as memory", "lutrams"),
        ("flip-flops", "flip_flops"),
        ("DSPs", "dsps"),
    ):
        note = f"P4SGD's worker, by Vivado, with PCIe and HBM: {paper[resource]:,}" if resource in paper else ""
        yield Result(f"{config.name} node: {resource}", total(attribute), resource, note=note)
    note = f"P4SGD's worker: {paper['RAM']} Mb" if paper else ""
    yield Result(f"{config.name} node: block and ultra RAM", total("ram_bits") / MEGABIT, "Mb", note=note)
