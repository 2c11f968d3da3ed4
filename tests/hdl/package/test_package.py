# amaranth: UnusedElaboratable=no
"""Packages of the catalogue's components: others' readers find what Verilog and map have."""

import json
import os
import re
import subprocess
from pathlib import Path

import pyslang
import pytest
from ipyxact import ipyxact
from lxml import etree
from pyEDAA import IPXACT
from pyslang import ast, syntax

from fanin.base.tools import yosys
from fanin.glm.facts import PRESETS
from fanin.hdl import catalog
from fanin.hdl.bus.register_map import Access, Register, RegisterMap
from fanin.hdl.package.harness import Port
from fanin.hdl.package.ip_xact import component
from fanin.hdl.package.package import IP_XACT, MARK, file_names, package
from fanin.sim.cosim.build import find_verilator
from tests.hdl.bus.test_register_map import MAP
from tests.hdl.test_catalog import LARGE
from tests.support import slow

SLOW = (*LARGE, "store", "softmax-loss")
each_component = pytest.mark.parametrize(
    "name", [*(name for name in catalog.CATALOG if name not in SLOW), *slow(*SLOW)]
)
NS = "{http://www.accellera.org/XMLSchema/IPXACT/1685-2014}"
QUIET = ["WIDTH", "CASEINCOMPLETE", "CMPCONST", "UNSIGNED"]  # as the core's target lint
ACCEPTED = {  # pyslang's, of widths, signs and cases that the language settles
    "ArithOpMismatch",
    "BitwiseOpMismatch",
    "CaseDefault",
    "ComparisonMismatch",
    "SignCompare",
    "SignConversion",
    "WidthTruncate",
    "WidthExpand",
}


@pytest.fixture
def made(name, tmp_path):
    """The files of a package, and the folder that they lie in."""
    files = package(name, preset="tiny", settings={}, clock_mhz=200)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    return files, tmp_path


def document(text):
    """IP-XACT, once the standard's schema has accepted it."""
    folder = Path(IPXACT.__file__).parent / "Schema/ieee-1685-2014"
    root = etree.fromstring(text.encode())
    etree.XMLSchema(etree.parse(folder / "index.xsd")).assertValid(root)
    return root


def read_verilog(folder, module):
    """A module from outside, as yosys writes it."""
    script = f"read_verilog -lib {module}.v; write_json {module}.yosys.json"
    subprocess.run([yosys(), "-q", "-p", script], cwd=folder, check=True, capture_output=True)
    return json.loads((folder / f"{module}.yosys.json").read_text())["modules"][module]


def verilog_ports(folder, module):
    """Direction and width of each port of a module, as yosys reads them."""
    ports = read_verilog(folder, module)["ports"]
    return {name: (port["direction"].removesuffix("put"), len(port["bits"])) for name, port in ports.items()}


def described_ports(root):
    wires = {port.findtext(f"{NS}name"): port.find(f"{NS}wire") for port in root.iter(f"{NS}port")}
    return {
        name: (wire.findtext(f"{NS}direction"), int(wire.findtext(f"{NS}vectors/{NS}vector/{NS}left", "0")) + 1)
        for name, wire in wires.items()
    }


def described_words(root):
    """Byte offset of every word of the memory map with its name and its fields."""
    words = {}
    for block in root.iter(f"{NS}addressBlock", f"{NS}registerFile"):
        base, stride = _number(block.findtext(f"{NS}addressOffset", "'h0")), int(block.findtext(f"{NS}range"))
        for register in block.findall(f"{NS}register"):
            first = base + _number(register.findtext(f"{NS}addressOffset"))
            repeated = [4 * index for index in range(int(register.findtext(f"{NS}dim", "1")))]
            turns = [stride * turn for turn in range(int(block.findtext(f"{NS}dim", "1")))]
            for offset in (first + turn + more for turn in turns for more in repeated):
                assert offset not in words
                words[offset] = register.findtext(f"{NS}name"), _fields(register)
    return words


def _fields(register):
    return [
        (
            field.findtext(f"{NS}name"),
            int(field.findtext(f"{NS}bitOffset")),
            int(field.findtext(f"{NS}bitWidth")),
            _number(field.findtext(f"{NS}resets/{NS}reset/{NS}value")),
        )
        for field in register.findall(f"{NS}field")
    ]


def _number(text):
    assert text.startswith("'h")
    return int(text[2:], 16)


def map_words(registers):
    """What ``described_words`` says of a map that is described well."""
    words = {}
    for number, register, _, word in registers.words():
        parts = [(field.name, shift, field.bits, field.reset) for field, shift in register.word_shifts(word)]
        words[4 * number] = register.word_name(word), parts
    return words


@each_component
def test_ports_registers_and_files_are_those_of_verilog_and_map(name, made):
    files, folder = made
    root, module = document(files[IP_XACT]), catalog.module_of(name)
    assert described_ports(root) == verilog_ports(folder, module)
    entry = catalog.CATALOG[name]
    registers = entry.registers(entry.build(PRESETS["tiny"], {})) if entry.registers else None
    assert described_words(root) == (map_words(registers) if registers else {})
    absent = () if registers else (f"{module}.h", f"{module}.svd", f"{module}.json")
    assert {*files} == {MARK, *file_names(module)} - {*absent}
    listed = {file.findtext(f"{NS}name") for file in root.iter(f"{NS}file")}
    assert listed == {*files} - {MARK, IP_XACT, f"{module}_harness.v", f"{module}.core"}


@each_component
def test_another_reader_finds_buses_clock_and_reset(name, made):
    files, folder = made
    read = ipyxact.Component()
    read.load(str(folder / IP_XACT))
    assert (read.vendor, read.name) == ("fanin", catalog.module_of(name))
    listed = {bus["name"] for bus in json.loads(files[MARK])["interfaces"]}
    assert {bus.name for bus in read.busInterfaces.busInterface} == listed | {"clk", "rst"}
    assert len(read.model.ports.port) == len(described_ports(document(files[IP_XACT])))


@pytest.mark.verilator
@each_component
def test_verilator_has_no_complaint(name, made):
    files, folder = made
    module, verilator = catalog.module_of(name), find_verilator()
    quiet = re.findall(r"-Wno-\w+", files[f"{module}.core"])  # of its target lint
    done = subprocess.run(
        [verilator.program, "--lint-only", *quiet, "--top-module", module, f"{module}.v"],
        cwd=folder,
        env=os.environ | dict(verilator.environment),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@each_component
def test_a_second_front_end_has_no_complaint(name, made):
    """Slang compiles all modules, in the harness, and elaborates them."""
    _, folder = made
    module = catalog.module_of(name)
    compilation = ast.Compilation()
    for file in (f"{module}.v", f"{module}_harness.v"):
        compilation.addSyntaxTree(syntax.SyntaxTree.fromFile(str(folder / file)))
    engine = pyslang.DiagnosticEngine(syntax.SyntaxTree.getDefaultSourceManager())
    said = {
        (engine.getSeverity(each.code, each.location), re.sub(r"DiagCode\((\w+)\)", r"\1", str(each.code)))
        for each in compilation.getAllDiagnostics()
    }
    bad = {pyslang.DiagnosticSeverity.Error, pyslang.DiagnosticSeverity.Fatal}
    assert {code for severity, code in said if severity in bad or code not in ACCEPTED} == set()
    assert [top.name for top in compilation.getRoot().topInstances] == [f"{module}_harness"]


def test_every_kind_of_register_is_described():
    ports, files = [Port("clk", 1, False), Port("rst", 1, False)], {"rtl": [("x.v", "verilogSource")]}
    registers = RegisterMap((*MAP.registers, Register("cycles", "counter", "Cycles.", bits=64)))
    text = component(name="x", description="Test.", ports=ports, buses=[], registers=registers, files=files)
    root = document(text)
    assert described_words(root) == map_words(registers)
    about = {
        register.findtext(f"{NS}name"): (register.findtext(f"{NS}access"), register.findtext(f"{NS}volatile"))
        for register in root.iter(f"{NS}register")
    }
    kinds = {register.word_name(0): register.access for register in MAP.registers}
    assert {kinds[name]: said for name, said in about.items() if name in kinds} == {
        Access.RO: ("read-only", "true"),
        Access.RW: ("read-write", "false"),
        Access.PULSE: ("write-only", "false"),
        Access.COUNTER: ("read-only", "true"),
        Access.WINDOW: ("read-write", "true"),
    }
    stepping = [field for field in root.iter(f"{NS}field") if field.findtext(f"{NS}readAction")]
    assert [field.findtext(f"{NS}name") for field in stepping] == ["model"]


NODE = pytest.mark.parametrize("name", ["frame-receiver"])


@NODE
def test_attributes_stand_on_clock_reset_and_streams_that_names_do_not_show(name, made):
    _, folder = made
    nets = read_verilog(folder, "frame_receiver")["netnames"]
    noted = {
        net: {key: text for key, text in about["attributes"].items() if key.startswith("X_")}
        for net, about in nets.items()
    }
    assert {net: notes for net, notes in noted.items() if notes} == {
        "clk": {
            "X_INTERFACE_INFO": "xilinx.com:signal:clock:1.0 clk CLK",
            "X_INTERFACE_PARAMETER": "ASSOCIATED_BUSIF i, ASSOCIATED_RESET rst",
        },
        "rst": {
            "X_INTERFACE_INFO": "xilinx.com:signal:reset:1.0 rst RST",
            "X_INTERFACE_PARAMETER": "POLARITY ACTIVE_HIGH",
        },
    }


@pytest.mark.parametrize("name", ["adder-tree"])
def test_a_plain_stream_s_ports_are_noted(name, made):
    files, _ = made
    note = '(* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 i TREADY" *)\n  output i_ready;'
    assert note in files["adder_tree.v"]


@NODE
def test_constraints_ask_for_the_clock(name, made):
    files, _ = made
    assert "create_clock -name clk -period 5.000 [get_ports {clk}]\n" in files["frame_receiver.xdc"]
    assert "create_clock -name clk -period 5.000 [get_ports {clk}]\n" in files["frame_receiver.sdc"]
    assert 'FREQUENCY PORT "clk" 200 MHZ;\n' in files["frame_receiver.lpf"]


@pytest.mark.parametrize("name", ["inceptionn-nic"])
@pytest.mark.slow
def test_the_registers_are_behind_the_bus_that_reaches_them(name, made):
    files, _ = made
    buses = {bus.findtext(f"{NS}name"): bus for bus in document(files[IP_XACT]).iter(f"{NS}busInterface")}
    mapped = [name for name, bus in buses.items() if bus.find(f"{NS}slave/{NS}memoryMapRef") is not None]
    assert mapped == ["axil"]
    parameters = {
        each.findtext(f"{NS}name"): each.findtext(f"{NS}value") for each in buses["clk"].iter(f"{NS}parameter")
    }
    assert parameters["ASSOCIATED_BUSIF"] == "axil:host_tx:mac_tx:mac_rx:host_rx"
    assert [name for name, bus in buses.items() if bus.find(f"{NS}master") is not None] == ["mac_tx", "host_rx"]
