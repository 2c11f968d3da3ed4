"""Area and logic depth of a Verilog module, from yosys' mapping to Xilinx UltraScale+ primitives.

yosys is no vendor tool, so counts are comparable only with other designs that the same yosys maps. The depth is
structural: LUT levels and carry chains between two registers (docs/reference/benchmarks.md).
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from fanin.base.tools import run_tool, yosys

# Memories made of LUTs: number of LUTs, and port of the write address if it is named like those of reads.
_RAM_LUTS = {
    "RAM32M": 4,
    "RAM32M16": 8,
    "RAM64M": 4,
    "RAM64M8": 8,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
}
_RAM_WRITE_ADDRESS = {"RAM32M": "ADDRD", "RAM64M": "ADDRD", "RAM32M16": "ADDRH", "RAM64M8": "ADDRH"}
_SHIFT_REGISTERS = ("SRL16E", "SRLC16E", "SRLC32E")
# Combinational primitives. All other cells, black boxes included, count as registers on a path.
_FREE_CELLS = ("MUXF", "INV")
_LONG_WIRE_PS = 2000  # ps of wire after each LUT: more than any chain or memory takes
_COMBINATIONAL = ("LUT", "CARRY4", *_FREE_CELLS, *_RAM_LUTS)


class Goal(Enum):
    """Primary goal of the mapper.

    With AREA, wires have no delay: the mapper saves area on each path that is faster than the slowest one. With
    DEPTH, wires are slow, so that the mapper uses the fewest LUTs in series.
    """

    DEPTH = "depth"
    AREA = "area"


@dataclass(frozen=True, order=True)
class Depth:
    """Depth of a path into a register.

    - ``luts``: LUTs in series.
    - ``chains``: carry chains in series.
    - ``chain_bits``: bits of the longest chain.
    """

    luts: int = 0
    chains: int = 0
    chain_bits: int = 0

    def join(self, other: Depth) -> Depth:
        """Return the maximum of each member."""
        return Depth(
            max(self.luts, other.luts), max(self.chains, other.chains), max(self.chain_bits, other.chain_bits)
        )


@dataclass
class Area:
    """Area of a mapped module, and its deepest path.

    - ``cells``: number of primitives by type.
    - ``depth``: maximum depth of a path, member by member.
    - ``worst``: register at the end of the deepest path.
    """

    cells: Counter[str] = field(default_factory=Counter)
    depth: Depth = Depth()
    worst: str = ""

    def __add__(self, other: Area) -> Area:
        """Return the sum of the cells and the worse of the two paths."""
        worst = self.worst if self.depth >= other.depth else other.worst
        return Area(self.cells + other.cells, self.depth.join(other.depth), worst)

    def times(self, count: int) -> Area:
        """Return the area of ``count`` parallel copies."""
        return Area(Counter({name: n * count for name, n in self.cells.items()}), self.depth, self.worst)

    @property
    def luts(self) -> int:
        """Number of LUTs used as logic."""
        return sum(n for name, n in self.cells.items() if name in {f"LUT{i}" for i in range(1, 7)})

    @property
    def lutrams(self) -> int:
        """Number of LUTs used as memory or shift register."""
        rams = sum(_RAM_LUTS.get(name, 0) * n for name, n in self.cells.items())
        return rams + sum(self.cells[name] for name in _SHIFT_REGISTERS)

    @property
    def flip_flops(self) -> int:
        """Number of flip-flops."""
        return sum(n for name, n in self.cells.items() if name.startswith("FD"))

    @property
    def dsps(self) -> int:
        """Number of DSP blocks."""
        return self.cells["DSP48E2"]

    @property
    def ram_bits(self) -> int:
        """Capacity of the used block and ultra RAMs, in bits."""
        kib = {"RAMB36E2": 36, "RAMB18E2": 18, "URAM288": 288}
        return sum(kib.get(name, 0) * 1024 * n for name, n in self.cells.items())


def synthesise(
    verilog: str,
    top: str,
    *,
    options: str = "",
    goal: Goal = Goal.DEPTH,
    blackboxes: Collection[str] = (),
    timeout: float = 3600,
) -> Area:
    """Map ``top`` with ``synth_xilinx -family xcup -flatten`` and measure it.

    Raises ToolFailed with yosys' last lines if it fails or exceeds ``timeout``.

    - ``options``: options of ``synth_xilinx`` such as ``-nodsp``; ``-noiopad`` is always set.
    - ``goal``: primary goal of the mapper.
    - ``blackboxes``: modules to leave out; their ports count as registers, their instances as cells.
    - ``timeout``: limit in s.
    """
    with tempfile.TemporaryDirectory(prefix="fanin-area-") as folder:
        source, netlist = Path(folder, "top.v"), Path(folder, "top.json")
        source.write_text(verilog)
        boxes = "".join(f" blackbox {name};" for name in blackboxes)
        wires = f" scratchpad -set synth_xilinx.abc9.W {_LONG_WIRE_PS};" if goal is Goal.DEPTH else ""
        script = (
            f"read_verilog {source.name};{boxes}{wires} synth_xilinx -family xcup -flatten -noiopad {options}"
            f" -top {top}; write_json {netlist.name}"
        )
        run_tool([yosys(), "-q", "-p", script], Path(folder), timeout)
        return analyse(json.loads(netlist.read_text())["modules"][top])


def analyse(module: dict[str, Any]) -> Area:
    """Count the cells of a flat mapped module, and find its worst register-to-register path.

    Ports and black boxes count as registers. Block memories, shift registers and DSP blocks start and end a
    path. A read of a LUT memory counts as a LUT. MUXF and inverters are free, as parts of the slice.
    """
    cells = module["cells"]
    area = Area(cells=Counter(cell["type"] for cell in cells.values()))
    arrival: dict[int, Depth] = {}  # depth of the path from a register to a net, by net number
    chain_bits = _chain_lengths(cells)
    for name in _topological(cells):
        cell = cells[name]
        if cell["type"] == "CARRY4":
            _carry_arrival(cell, arrival, chain_bits[name])
            continue
        depth = _worst(_path_inputs(cell), arrival)
        cost = 0 if cell["type"].startswith(_FREE_CELLS) else 1
        for bit in _bits(cell, "output"):
            arrival[bit] = Depth(depth.luts + cost, depth.chains, depth.chain_bits)
    for name, cell in cells.items():
        if not cell["type"].startswith(_COMBINATIONAL) or cell["type"] in _RAM_LUTS:
            depth = _worst(_bits(cell, "input"), arrival)
            if depth > area.depth:
                area.worst = name
            area.depth = area.depth.join(depth)
    return area


def _bits(cell: dict[str, Any], direction: str) -> Iterator[int]:
    """Yield the net numbers at a cell's ports of a direction, without constants."""
    for port, bits in cell["connections"].items():
        if cell["port_directions"].get(port) == direction:
            yield from (bit for bit in bits if isinstance(bit, int))


def _path_inputs(cell: dict[str, Any]) -> Iterator[int]:
    """Yield the inputs with a combinational path to an output; of a memory, only the read addresses."""
    if cell["type"] not in _RAM_LUTS:
        yield from _bits(cell, "input")
        return
    write = _RAM_WRITE_ADDRESS.get(cell["type"])
    for port, bits in cell["connections"].items():
        if port.startswith(("ADDR", "DPRA")) and port != write:
            yield from (bit for bit in bits if isinstance(bit, int))


def _worst(bits: Iterator[int], arrival: dict[int, Depth]) -> Depth:
    """Return the maximum depth of some bits; bits without an arrival come from registers."""
    depth = Depth()
    for bit in bits:
        if bit in arrival:
            depth = depth.join(arrival[bit])
    return depth


def _carry_arrival(cell: dict[str, Any], arrival: dict[int, Depth], bits: int) -> None:
    """Set the arrival of a CARRY4's outputs. A chain counts once: a carry input from a CARRY4 adds nothing."""
    wires = cell["connections"]
    input_depth = _worst((b for p in ("S", "DI", "CYINIT") for b in wires[p] if isinstance(b, int)), arrival)
    chain_depth = _worst((b for b in wires["CI"] if isinstance(b, int)), arrival)
    depth = Depth(input_depth.luts, input_depth.chains + 1, max(input_depth.chain_bits, bits)).join(chain_depth)
    for bit in _bits(cell, "output"):
        arrival[bit] = depth


def _chain_lengths(cells: dict[str, Any]) -> dict[str, int]:
    """Return the bits of the carry chain up to each CARRY4, of which only the used outputs count."""
    driver = {
        cell["connections"]["CO"][3]: name
        for name, cell in cells.items()
        if cell["type"] == "CARRY4" and isinstance(cell["connections"]["CO"][3], int)
    }
    readers = {b for cell in cells.values() for b in _bits(cell, "input")}

    def used_outputs(cell: dict[str, Any]) -> int:
        used = [i + 1 for i in range(4) for p in ("O", "CO") if cell["connections"][p][i] in readers]
        return max(used, default=0)

    lengths: dict[str, int] = {}
    for name, cell in cells.items():
        if cell["type"] != "CARRY4":
            continue
        total, predecessor = used_outputs(cell), driver.get(cell["connections"]["CI"][0])
        while predecessor is not None:
            total += 4
            predecessor = driver.get(cells[predecessor]["connections"]["CI"][0])
        lengths[name] = total
    return lengths


def _topological(cells: dict[str, Any]) -> Iterator[str]:
    """Yield the combinational cells, each after its drivers. Raises ValueError for a combinational loop."""
    combinational = {name for name, cell in cells.items() if cell["type"].startswith(_COMBINATIONAL)}
    driver = {bit: name for name in combinational for bit in _bits(cells[name], "output")}
    unresolved: dict[str, int] = {}
    readers: dict[str, list[str]] = defaultdict(list)
    for name in combinational:
        sources = {driver[bit] for bit in _path_inputs(cells[name]) if bit in driver}
        unresolved[name] = len(sources)
        for source in sources:
            readers[source].append(name)
    ready = [name for name, count in unresolved.items() if count == 0]
    yielded = 0
    while ready:
        name = ready.pop()
        yielded += 1
        yield name
        for reader in readers[name]:
            unresolved[reader] -= 1
            if unresolved[reader] == 0:
                ready.append(reader)
    if yielded != len(combinational):
        raise ValueError(f"{len(combinational) - yielded} cells lie on a combinational loop")
