"""Verilog of a board's top for the harness, from the routed netlist or from its source.

Both models have the same ports. The same harness therefore runs both and can compare them cycle by cycle.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError, ToolFailed
from fanin.base.tools import yosys
from fanin.sim.boards.netlist import Netlist, netlist_of, read_netlist
from fanin.sim.boards.pins import Pins, open_pins, verilog_name
from fanin.sim.boards.verilog import cells_verilog, routed_verilog

_MAX_BITS = 64  # width limit of a port, which the harness sets and reads at once
_MODELLED_CELLS = ("IDDRX1F", "ODDRX1F")  # Lattice's cells of which cells.v has models
# Pads become TRELLIS_IO and Lattice's flip-flops TRELLIS_FF, whose model is yosys' own.
_FLATTEN = """
read_rtlil source.il
{reads}
techmap -map +/lattice/cells_io.vh
techmap -map +/lattice/cells_ff.vh
read_verilog -lib +/lattice/cells_bb_ecp5.v
read_verilog +/lattice/common_sim.vh
blackbox TRELLIS_IO
hierarchy -top {top}
proc
flatten
{expose}
opt_clean
write_json flat.json
"""


@dataclass(frozen=True)
class BoardModel:
    """A top for the harness: Verilog with the module ``top``, its ports, and the parts removed from its pins.

    ``widths``: bits of each port.
    """

    top: str
    verilog: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    pins: Pins
    widths: Mapping[str, int]


def routed_model(path: Path) -> BoardModel:
    """Return the model of a file that nextpnr-ecp5 wrote with ``--write``. Raises InputError for others."""
    netlist = read_netlist(path)
    try:
        pins = open_pins(netlist)
        return _model(netlist, pins, routed_verilog(netlist))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def source_model(
    path: Path, top: str = "top", *, expose: Sequence[str] = (), verilog_files: Sequence[Path] = ()
) -> BoardModel:
    """Return the model of a design in RTLIL at ``path`` (``top.il``) and in ``verilog_files``.

    ``expose`` names signals of the top that become outputs. Raises InputError if it cannot be simulated, and
    ToolFailed if yosys fails.
    """
    with tempfile.TemporaryDirectory(prefix="fanin-") as name:
        folder = Path(name)
        shutil.copyfile(path, folder / "source.il")
        exposed = "\n".join(f"expose w:{name}" for name in expose)
        read_commands = "\n".join(f"read_verilog {file.name}" for file in verilog_files)
        for file in verilog_files:
            shutil.copyfile(file, folder / file.name)
        _run_yosys(_FLATTEN.format(top=top, expose=exposed, reads=read_commands), folder)
        module = json.loads((folder / "flat.json").read_text())["modules"][top]
        netlist = netlist_of(top, module)
        pins = open_pins(netlist)
        kinds = {cell.kind for cell in netlist.cells.values() if not cell.kind.startswith("$")}
        if unknown := sorted(kinds.difference(_MODELLED_CELLS)):
            raise InputError(f"{path}: no model in simulation of: {', '.join(unknown)}")
        (folder / "opened.json").write_text(json.dumps({"modules": {top: _with_pins(module, netlist)}}))
        _run_yosys("read_json opened.json\nwrite_verilog -noattr top.v\n", folder)
        return _model(netlist, pins, cells_verilog() + (folder / "top.v").read_text())


def _with_pins(module: dict[str, Any], netlist: Netlist) -> dict[str, Any]:
    """Return the JSON of a module whose netlist was changed; registers' names keep their initial values."""
    initial_values: dict[Any, str] = {}
    for net in module["netnames"].values():
        if init := net["attributes"].get("init"):
            initial_values |= {
                bit: value for bit, value in zip(net["bits"], reversed(init), strict=True) if value != "x"
            }

    def net_of(bits: Sequence[Any]) -> dict[str, Any]:
        init = "".join(initial_values.get(bit, "x") for bit in reversed(bits))
        return {"hide_name": 0, "bits": bits, "attributes": {"init": init} if init.strip("x") else {}}

    ports = {name: {"direction": p.direction, "bits": p.bits} for name, p in netlist.ports.items()}
    cells = {name: module["cells"][name] | {"connections": cell.pins} for name, cell in netlist.cells.items()}
    driven = {bit for cell in netlist.cells.values() for pin in cell.outputs for bit in cell.pins[pin]}
    nets = {
        name: net_of(net["bits"]) for name, net in module["netnames"].items() if driven.issuperset(net["bits"])
    }
    nets |= {name: net_of(list(port["bits"])) for name, port in ports.items()}
    return module | {"ports": ports, "cells": cells, "netnames": nets}


def _model(netlist: Netlist, pins: Pins, verilog: str) -> BoardModel:
    names: dict[str, list[str]] = {"input": [], "output": []}
    for name, port in netlist.ports.items():
        if len(port.bits) > _MAX_BITS:
            raise InputError(f"{name}: a port may have {_MAX_BITS} bits, not {len(port.bits)}")
        names[port.direction].append(name)
    inputs, outputs = (tuple(sorted(names[direction])) for direction in ("input", "output"))
    widths = {name: len(port.bits) for name, port in netlist.ports.items()}
    return BoardModel(verilog_name(netlist.module), verilog, inputs, outputs, pins, widths)


def _run_yosys(script: str, folder: Path) -> None:
    process = subprocess.run([yosys(), "-q", "-"], cwd=folder, input=script, capture_output=True, text=True)
    if process.returncode:
        raise ToolFailed(f"yosys: {(process.stderr or process.stdout).strip()[-500:]}")
