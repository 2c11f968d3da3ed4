"""Benchmark of the ring node's area, split as in AI Smart NIC's table I: all-reduce, BFP compression, shim."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fanin.codec.facts import Bfp
from fanin.evaluation.bench.netlist import Area, Goal, synthesise
from fanin.evaluation.bench.result import Result
from fanin.evaluation.origins.graph import identifier
from fanin.hdl.emission import kept_verilog
from fanin.hdl.ring.node import RingNode
from fanin.ring.facts import PRESETS, RingConfig

ALL_REDUCE, CODEC, SHIM = "all-reduce", "BFP", "shim"
ALL_REDUCE_AND_CODEC = "all-reduce and BFP"  # the paper's addition to a smart NIC with a shim
TOP = "ring_node"

#: Part of the node that each module counts towards. Submodules count with their parent unless listed.
OWNERS = {
    TOP: SHIM,  # registers, control
    f"{TOP}__link": SHIM,
    f"{TOP}__engine": ALL_REDUCE,
    f"{TOP}__engine__local__reader": SHIM,  # AXI
    f"{TOP}__engine__store__writer": SHIM,
    f"{TOP}__engine__receive__decoder": CODEC,
    f"{TOP}__engine__send__encoder": CODEC,
    f"{TOP}__engine__send__decoder": CODEC,
    "fp32_adder": ALL_REDUCE,
}

#: Name: configuration, and number of nodes that one NIC needs.
NODES = {
    "8 lanes, 40 Gb/s": (PRESETS["prototype"], 1),
    "16 lanes, 100 Gb/s": (PRESETS["u280"], 1),
    "4 × 16 lanes, 400 Gb/s": (PRESETS["u280"], 4),
}

BLOCK_BITS = 36 * 1024  # of an UltraScale+ block RAM; Arria 10's M20K has 20 kb
PAPER = {
    ("8 lanes, 40 Gb/s", ALL_REDUCE): ("2,233 ALMs", "46 M20Ks", "8 DSPs"),
    ("8 lanes, 40 Gb/s", CODEC): ("2,857 ALMs", "120 M20Ks", "none"),
    ("8 lanes, 40 Gb/s", SHIM): ("64,480 ALMs, PCIe and MAC among them", "368 M20Ks", "none"),
    ("8 lanes, 40 Gb/s", ALL_REDUCE_AND_CODEC): ("5,090 ALMs", "166 M20Ks", "8 DSPs"),
    ("8 lanes, 40 Gb/s", "total"): ("69,570 ALMs", "534 M20Ks", "8 DSPs"),
    ("4 × 16 lanes, 400 Gb/s", ALL_REDUCE_AND_CODEC): (
        "< 8,544 ALMs (2 %)",
        "< 244 M20Ks (9 %)",
        "< 76 DSPs (5 %)",
    ),
}


def measure() -> Iterator[Result]:
    """Yield the figures as they are measured; some minutes for each of two nodes."""
    mapped: dict[RingConfig, dict[str, Area]] = {}
    for name, (sizes, count) in NODES.items():
        if sizes not in mapped:
            mapped[sizes] = _node(sizes)
        yield from _figures(name, {part: area.times(count) for part, area in mapped[sizes].items()})


def _node(sizes: RingConfig) -> dict[str, Area]:
    config = RingConfig(**{**vars(sizes), "codec": Bfp()})
    return split(kept_verilog(RingNode(config=config), name=TOP), TOP, OWNERS)


def split(verilog: str, top: str, owners: Mapping[str, str]) -> dict[str, Area]:
    """Return the area of each owner's modules inside ``top``; the areas add up to that of ``top``.

    A module with an owner is mapped separately, and multiplied by its occurrences. A module without an owner is
    part of its parent. Emission may append a number to a module's name. Raises ValueError for an owned module
    that is absent, or has several names.
    """
    modules = {name: _module(verilog, name) for name in owners}
    mapped = {
        name: synthesise(verilog, module, goal=Goal.AREA, blackboxes=set(modules.values()) - {module})
        for name, module in modules.items()
    }
    parts = {owner: Area() for owner in owners.values()}

    def count(name: str, times: int) -> None:
        area = mapped[name].times(times)
        for inner, module in modules.items():
            if occurrences := mapped[name].cells[module]:
                count(inner, times * occurrences)
                del area.cells[module]
        parts[owners[name]] += area

    count(top, 1)
    return parts


def _module(verilog: str, name: str) -> str:
    names = re.findall(rf"^module ({name}(?:_\d+)?)\(", verilog, re.MULTILINE)
    if len(names) != 1:
        raise ValueError(f"one module must be called {name}, not {len(names)}")
    return str(names[0])


def _figures(node: str, parts: Mapping[str, Area]) -> Iterator[Result]:
    total = sum(parts.values(), Area())
    added, node_id = parts[ALL_REDUCE] + parts[CODEC], identifier("area.ring", node.partition(",")[0])
    for part, area in {**parts, ALL_REDUCE_AND_CODEC: added, "total": total}.items():
        notes = [f"the paper: {figure}" for figure in PAPER.get((node, part), ())] or [""] * 3
        name, id_prefix = f"ring node, {node}: {part}", identifier(node_id, part)
        luts = area.luts + area.lutrams
        yield Result(f"{name}, LUTs", luts, "LUTs", note=notes[0], id=f"{id_prefix}.luts")
        yield Result(f"{name}, LUTs as memory", area.lutrams, "LUTs")
        yield Result(f"{name}, flip-flops", area.flip_flops, "flip-flops")
        blocks = area.ram_bits / BLOCK_BITS
        yield Result(f"{name}, block RAM", blocks, "× 36 kb", note=notes[1], id=f"{id_prefix}.block_ram")
        yield Result(f"{name}, DSPs", area.dsps, "DSPs", note=notes[2])
