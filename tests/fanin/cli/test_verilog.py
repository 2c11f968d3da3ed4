"""``fanin verilog`` at the command line: register maps, and what it says of an emission."""

import gc
import json
import os
import re
import subprocess
from xml.etree import ElementTree

import pytest
from pygments.lexer import words
from pygments.lexers import SystemVerilogLexer
from pygments.token import Keyword

from fanin.cli.main import main
from fanin.hdl.keywords import KEYWORDS
from fanin.hdl.rdma.registers import rdma_registers
from fanin.rdma.facts import PRESETS
from fanin.sim.cosim.build import find_verilator


def run(capsys, *arguments):
    status = main(["verilog", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_node_s_registers_are_a_header_that_compiles(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "rdma-nic", "--preset", "tiny", "--registers", "c")
    assert (status, out) == (0, "")
    assert err.startswith("rdma_nic.h: ")
    offset = rdma_registers(PRESETS["tiny"]).offset("status")
    check = f'#include "rdma_nic.h"\nstatic_assert(FANIN_RDMA_NIC_STATUS_OFFSET == {offset}, "");\n'
    (tmp_path / "check.cpp").write_text(check)
    subprocess.run(["g++", "-fsyntax-only", "check.cpp"], check=True)


def test_registers_go_to_stdout_as_json_or_svd(capsys):
    names = [register.name for register in rdma_registers(PRESETS["tiny"]).registers]
    status, out, _ = run(capsys, "rdma-nic", "--preset", "tiny", "--registers", "json", "-o", "-")
    assert status == 0
    assert [register["name"] for register in json.loads(out)["registers"]] == names
    _, out, _ = run(capsys, "rdma-nic", "--preset", "tiny", "--registers", "svd", "-o", "-")
    assert ElementTree.fromstring(out).find("peripherals/peripheral/name").text == "rdma_nic"


def test_constants_and_an_instance_have_the_modules_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    design = ("ring-node", "--preset", "tiny", "--name", "mine")
    assert run(capsys, *design, "--registers", "verilog") == (0, "", "mine.vh: 217 lines\n")
    assert "\nlocalparam [31:0] MINE_ID_RESET = 32'h464e5247;\n" in (tmp_path / "mine.vh").read_text()
    status, _, err = run(capsys, *design, "--instance")
    assert status == 0
    assert err.startswith("mine_instance.vh: ")
    assert "\nmine node (\n" in (tmp_path / "mine_instance.vh").read_text()


@pytest.mark.parametrize("other", [("--registers", "c"), ("--package", "folder")])
def test_an_instance_is_a_file_of_its_own(capsys, other):
    status, _, err = run(capsys, "ring-node", "--instance", *other)
    assert status == 2
    assert "--instance" in err
    assert err.endswith("cannot be given together\n")


def test_settings_change_the_map(capsys):
    arguments = ("glm-node", "--preset", "tiny", "--registers", "json", "-o", "-")
    _, plain, _ = run(capsys, *arguments)
    _, other, _ = run(capsys, *arguments, "--set", "engines=4")
    assert plain != other


@pytest.mark.parametrize("form", ["c", "verilog", "svd", "json"])
def test_a_component_without_registers_is_refused_and_nothing_is_written(capsys, tmp_path, form):
    path = tmp_path / "out"
    status, out, err = run(capsys, "adder-tree", "--registers", form, "-o", str(path))
    assert (status, out) == (2, "")
    assert err.startswith("fanin: error: adder-tree has no registers; glm-node, ")
    assert err.count("\n") == 1
    assert not path.exists()


def test_an_emission_says_flip_flops_and_memories(capsys, tmp_path):
    path = str(tmp_path / "receiver.v")
    status, out, err = run(capsys, "frame-receiver", "--preset", "tiny", "-o", path)
    assert (status, out) == (0, "")
    first, second, *_ = err.splitlines()
    assert first.startswith(f"{path}: ")
    assert re.fullmatch(r"before synthesis: [\d,]+ bits of flip-flops, [\d,]+ bits of memory", second)


def test_json_is_one_object_that_names_each_large_memory(capsys, tmp_path):
    path = str(tmp_path / "engine.v")
    options = ("--preset", "tiny", "--set", "depth=1024", "-o", path, "--json")
    status, out, err = run(capsys, "glm-engine", *options)
    assert (status, err) == (0, "")
    said = json.loads(out)
    assert said["output"] == path
    models = {memory["name"]: memory for memory in said["memories"]}
    assert models["architectural"]["depth"] == models["accumulating"]["depth"] == 1024
    assert said["memory_bits"] >= 2 * 1024 * models["architectural"]["width"]
    assert said["flip_flops"] > 0


def test_json_of_registers_names_the_file(capsys, tmp_path):
    path = str(tmp_path / "nic.h")
    _, out, _ = run(capsys, "inceptionn-nic", "--registers", "c", "-o", path, "--json")
    assert json.loads(out) == {"output": path, "lines": (tmp_path / "nic.h").read_text().count("\n")}


def test_two_things_for_stdout_are_refused(capsys):
    status, out, err = run(capsys, "adder-tree", "-o", "-", "--json")
    assert (status, out) == (2, "")
    assert "-o names a file" in err


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("ring-node --preset ecp5-25", "ring-node has no sizes for ecp5-25; --preset may be tiny, demo, u280"),
        ("rdma-nic --preset ecp5-85", "rdma-nic has no sizes for ecp5-85; --preset may be tiny, demo, u280"),
        ("ring-nic --set lanes=2", "ring-nic lanes=2: width must be at least 112 bits, not 64"),
        ("ring-node --set codec=bfp --set lanes=2", "ring-node codec=bfp lanes=2: width must be 256 or 512"),
    ],
)
@pytest.mark.parametrize("output", ["-o", "--package"])
def test_sizes_that_a_component_does_not_have_are_one_line(capsys, tmp_path, arguments, cause, output):
    assert main(["verilog", *arguments.split(), output, str(tmp_path / "made")]) == 2
    gc.collect()  # half-made components, of which Amaranth would warn in another test
    error = capsys.readouterr().err
    assert (error.count("\n"), cause in error) == (1, True)
    assert not (tmp_path / "made").exists()


def test_the_list_says_which_components_have_no_sizes_for_a_board(capsys):
    assert main(["verilog", "--list", "--preset", "ecp5-45"]) == 0
    lines = capsys.readouterr().out.splitlines()
    name = next(number for number, line in enumerate(lines) if line.startswith("ring-node"))
    assert lines[name + 1] == "    has no sizes for ecp5-45; --preset may be tiny, demo, u280"


def modules(path):
    return re.findall(r"^module (\w+)\(", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("variants", [("adder-tree", "inputs=8", "inputs=64"), ("ring-node", "", "lanes=8")])
def test_two_variants_fit_into_one_design(tmp_path, variants):
    """Of the ring's node, the adder is the same in both, and would be defined twice."""
    component, *settings = variants
    paths = [tmp_path / "one.v", tmp_path / "two.v"]
    for path, setting in zip(paths, settings, strict=True):
        command = ["verilog", component, "--name", f"my_{path.stem}", "-o", str(path), "--preset", "tiny"]
        assert main(command + (["--set", setting] if setting else [])) == 0
    names = [modules(path) for path in paths]
    assert all(found[0] == f"my_{path.stem}" for path, found in zip(paths, names, strict=True))
    assert not set(names[0]) & set(names[1])
    verilator = find_verilator()
    top = "module top(input clk); my_one a(.clk(clk)); my_two b(.clk(clk)); endmodule\n"
    (tmp_path / "top.v").write_text(top)
    done = subprocess.run(
        [verilator.program, "--lint-only", "-Wno-fatal", "--top-module", "top", "top.v", "one.v", "two.v"],
        cwd=tmp_path,
        env=os.environ | dict(verilator.environment),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "%Error" in done.stderr) == (0, False)


def test_all_modules_of_a_node_begin_with_its_name(tmp_path):
    assert main(["verilog", "glm-node", "--preset", "tiny", "-o", str(tmp_path / "node.v")]) == 0
    names = modules(tmp_path / "node.v")
    assert "glm_node" in names
    assert any("fp32" in name or "engine" in name for name in names)
    assert all(name == "glm_node" or name.startswith("glm_node__") for name in names)


def test_a_register_map_has_the_modules_name(capsys):
    assert main(["verilog", "glm-node", "--name", "left", "--registers", "c", "-o", "-"]) == 0
    assert "LEFT_" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "8", "_a", "a-b", "a b", "ä"])
def test_a_name_that_is_none_is_refused(capsys, name):
    assert main(["verilog", "adder-tree", "--name", name, "-o", "-"]) == 2
    assert "a module's name must be a letter" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["module", "wire", "logic", "table"])
def test_a_reserved_word_is_no_name(capsys, name):
    assert main(["verilog", "adder-tree", "--name", name, "-o", "-"]) == 2
    assert f"'{name}' is reserved" in capsys.readouterr().err


def test_reserved_words_are_those_that_pygments_knows():
    rules = [
        rule
        for rule in SystemVerilogLexer.tokens["root"]
        if isinstance(rule, tuple) and isinstance(rule[0], words)
    ]
    known = {word for rule in rules if rule[1] in (Keyword, Keyword.Type) for word in rule[0].words}
    beside = {
        "class",
        "extends",
        "endclass",
        "package",
        "import",
        "inside",
        "dist",
    }  # each has a rule of its own
    assert known | beside == KEYWORDS
