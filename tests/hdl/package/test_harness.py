"""The harness around a module that is placed by itself."""

import json
import subprocess

from fanin.base.tools import yosys
from fanin.hdl.package.harness import Port, harness

ADDER = """module adder(input clk, input rst, input [7:0] a, input [7:0] b, output reg [8:0] sum);
always @(posedge clk) sum <= rst ? 0 : a + b;
endmodule
"""
PORTS = [Port("clk", 1, False), Port("rst", 1, False), Port("a", 8, False), Port("b", 8, False)]


def run(folder, verilog, script):
    """What yosys writes of the harness."""
    (folder / "top.v").write_text(verilog)
    script = f"read_verilog top.v; {script}; write_json top.json"
    subprocess.run([yosys(), "-q", "-p", script], cwd=folder, check=True, capture_output=True)
    return json.loads((folder / "top.json").read_text())["modules"]["harness"]


def test_in_the_harness_every_port_meets_a_register(tmp_path):
    verilog = ADDER + harness("adder", [*PORTS, Port("sum", 9, True)], name="harness")
    script = "hierarchy -top harness; proc; flatten; opt; sat -verify-no-timeout -seq 1 -show q"
    module = run(tmp_path, verilog, script)
    inputs = set(module["ports"]["d"]["bits"] + module["ports"]["rst"]["bits"])
    adders = [cell for cell in module["cells"].values() if cell["type"] == "$add"]
    assert len(adders) == 1
    assert not inputs & {bit for port in "AB" for bit in adders[0]["connections"][port]}


def test_a_module_with_one_output_is_not_optimised_away(tmp_path):
    adder = ADDER.replace("output reg [8:0]", "output reg").replace("a + b", "^(a + b)")
    verilog = adder + harness("adder", [*PORTS, Port("sum", 1, True)], name="harness")
    cells = run(tmp_path, verilog, "synth_ecp5 -top harness")["cells"].values()
    assert sum(cell["type"] == "TRELLIS_FF" for cell in cells) >= 16 + 1 + 2
