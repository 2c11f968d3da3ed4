"""Second opinions on a project's Verilog, with stubs of the vendor's modules: Verilator's lint and slang."""

import os
import re
import subprocess

from pyslang import DiagnosticEngine, ast, syntax

from fanin.hdl.boards.vendor.stubs import Port, stub
from fanin.hdl.emit import flat_ports
from fanin.sim.cosim.build import find_verilator

# What yosys' Verilog and empty stubs always have: unused and undriven signals, initial values in declarations,
# constants without their leading zeros, ``!`` before a vector, cases without default, shifts into less,
# comparisons that a counter's width decides, signals called as a part beside them, signed words in unsigned
# ones.
STYLE = {
    "UNUSEDSIGNAL",
    "UNUSEDPARAM",
    "UNDRIVEN",
    "PROCASSINIT",
    "DECLFILENAME",
    "WIDTHEXPAND",
    "WIDTHTRUNC",
    "CASEINCOMPLETE",
    "CMPCONST",
    "VARHIDDEN",
}
SLANG_STYLE = {"ArithOpMismatch", "CaseDefault", "SignConversion", "WidthTruncate"}


def node_stub(node, module):
    """A node's ports alone: quick to make, and enough for the wiring of a top."""
    ports = [Port(port.name, port.output, len(port.value)) for port in flat_ports(node)]
    return stub(module, [Port("clk", False), Port("rst", False), *ports])


def _said_by_verilator(folder, names):
    verilator = find_verilator()
    done = subprocess.run(
        [verilator.program, "--lint-only", "-Wall", "-Wno-fatal", "--top-module", "top", *names],
        cwd=folder,
        env=os.environ | dict(verilator.environment),
        capture_output=True,
        text=True,
    )
    for kind, text in re.findall(r"^%(?:Warning|Error)-?(\w*): (.*)", done.stderr, re.MULTILINE):
        # At a port a width is no matter of style.
        if kind not in STYLE or "port connection" in text:
            yield f"verilator {kind}: {text}"


def _said_by_slang(folder, names):
    compilation = ast.Compilation()
    for name in names:
        compilation.addSyntaxTree(syntax.SyntaxTree.fromFile(str(folder / name)))
    for diagnostic in compilation.getAllDiagnostics():
        kind = re.sub(r"DiagCode\((\w+)\)", r"\1", str(diagnostic.code))
        if kind not in SLANG_STYLE:
            yield f"slang: {DiagnosticEngine.reportAll(compilation.sourceManager, [diagnostic])}"


def complaints(folder, texts):
    """What either says of the Verilog ``texts`` by name; ``top`` is the top."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [*_said_by_verilator(folder, texts), *_said_by_slang(folder, texts)]
