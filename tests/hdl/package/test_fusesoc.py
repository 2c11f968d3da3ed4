# amaranth: UnusedElaboratable=no
"""FuseSoC reads a package's core, and edalize makes projects of it; no vendor's tool runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanin import __version__
from fanin.base.tools import yosys
from fanin.hdl.package.package import package
from fanin.sim.cosim.build import find_verilator
from tests.support import slow

FUSESOC = (sys.executable, "-m", "fusesoc.main", "--config", "fusesoc.conf")  # no other settings count
MODULE, TOP = "adder_tree", "adder_tree_harness"
NAME = f"fanin_node_{MODULE}_{__version__}"


def write(name, folder):
    """A folder with a package."""
    folder.mkdir()
    for file, text in package(name, preset="tiny", settings={}, clock_mhz=100).items():
        (folder / file).write_text(text)
    return folder


@pytest.fixture
def core(tmp_path):
    return write("adder-tree", tmp_path / "core")


def fusesoc(core, *options, **environment):
    """Run FuseSoC with one core; returns where its build is."""
    (module,) = (path.stem for path in core.glob("*.core"))
    folder = core.parent
    (folder / "fusesoc.conf").touch()
    command = [*FUSESOC, "--cores-root", str(core), "run", "--work-root", "build", *options]
    done = subprocess.run(
        [*command, f"fanin:node:{module}"],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build"


def project(core, tool):
    return fusesoc(core, "--setup", "--target", "synth", "--tool", tool)


#: How the files of a project name sources, constraints and the top, and the suffix of the constraints.
PROJECTS = {
    "vivado": (r"read_verilog \{(.*?)\}", r"read_xdc \{(.*?)\}", r"set_property top (\w+) ", "xdc"),
    "quartus": (r"VERILOG_FILE (\S+)", r"SDC_FILE (\S+)", r"TOP_LEVEL_ENTITY (\w+)\n", "sdc"),
    "trellis": (r"read_verilog \{(.*?)\}", r"--lpf (\S+)", r"set top (\w+)\n", "lpf"),
}


@pytest.mark.parametrize("tool", PROJECTS)
@pytest.mark.parametrize("name", ["adder-tree", *slow("glm-node", "ring-node", "rdma-nic", "cluster-node")])
def test_a_project_names_all_sources_the_clock_and_the_top(name, tool, tmp_path):
    build, module = project(write(name, tmp_path / "core"), tool), name.replace("-", "_")
    text = "".join(path.read_text() for path in (*build.glob("*.tcl"), build / "Makefile"))
    sources, constraints, top, suffix = PROJECTS[tool]
    assert {*re.findall(top, text)} == {f"{module}_harness"}
    named = re.findall(sources, text)
    assert {Path(each).name for each in named} == {f"{module}.v", f"{module}_harness.v"}
    assert {Path(each).name for each in re.findall(constraints, text)} == {f"{module}.{suffix}"}
    assert all((build / each).is_file() for each in named)
    if tool == "vivado":
        project_file = f"fanin_node_{module}_{__version__}"
        assert f"{project_file}.xpr: {project_file}.tcl" in text
    if tool == "trellis":
        script = f"read_verilog {' '.join(named)}; hierarchy -check -top {module}_harness"
        subprocess.run([yosys(), "-q", "-p", script], cwd=build, check=True)


@pytest.mark.slow
@pytest.mark.needs("nextpnr")
def test_the_project_for_nextpnr_ends_in_a_bitstream_that_meets_the_clock(core, tmp_path):
    """With the wheel's programs under the names that edalize calls them by; its yosys has no Tcl."""
    build, programs = project(core, "trellis"), tmp_path / "bin"
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
    fusesoc(core, "--target", "lint", **environment)
