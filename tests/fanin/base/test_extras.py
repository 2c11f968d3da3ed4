"""A base install: what works without any extra, and what is said where one is needed."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from fanin.base.extras import EXTRAS, how_to_install, how_to_reinstall

ROOT = Path(__file__).parents[3]
#: Run first in another Python: modules of extras cannot be found.
WITHOUT = f"""
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {sorted(module for extra in EXTRAS for module in extra.modules)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def _python(code, folder):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code], cwd=folder, capture_output=True, text=True, check=False
    )


def _command(folder, *arguments):
    return _python(f"from fanin.cli.main import main; sys.exit(main({list(map(str, arguments))}))", folder)


def test_what_a_base_install_serves_needs_no_extra(tmp_path):
    code = """
import fanin.glm.run.execute, fanin.ring.run.execute, fanin.param_server.run.execute, fanin.sklearn
import fanin.sim.glm.cosim, fanin.glm.golden.train, fanin.ring.golden.all_reduce, fanin.param_server.golden
import fanin.cli.p4.run, fanin.hdl.catalog, fanin.sim.checker.search, fanin.cli.codec.verify
from fanin import aggregate, compress, emit_p4
assert aggregate([[1.0]] * 2).values == [2.0]
"""
    found = _python(code, tmp_path)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("verilog", "adder-tree"),
        ("p4", "emit", "-o", "p4"),
        ("p4", "check", "--protocol", "p4sgd", "--workers", "2", "--slots", "1"),
    ],
    ids=lambda arguments: arguments[0] + arguments[-1],
)
def test_commands_of_a_base_install(tmp_path, arguments):
    found = _command(tmp_path, *arguments)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("plan", "digits_cnn", "arria10x1", "-o", "plan"), "planner"),
        (("cluster", "run", "-o", "run"), "planner"),
        (("cluster", "run", "--on", "golden", "-o", "run"), "planner"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(tmp_path, arguments, extra):
    found = _command(tmp_path, *arguments)
    line = found.stderr.splitlines()[-1]
    modules = next(each.modules for each in EXTRAS if each.name == extra)
    assert found.returncode == 2
    assert line.startswith(tuple(f"fanin: error: {module} is missing, for " for module in modules))
    assert line.endswith(f": pip install 'fanin[{extra}]'")
    assert not list(tmp_path.iterdir())


def test_all_are_all_but_three():
    """docs/start.md says which: bitstreams and PyTorch are gigabytes."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (line,) = declared["all"]
    of_all = set(line.removeprefix("fanin[").removesuffix("]").split(","))
    assert of_all == {extra.name for extra in EXTRAS} - {"boards", "sdram", "torch"}
    table = (ROOT / "docs/start.md").read_text().partition("'fanin[all]'` | all of the above")[0]
    assert set(re.findall(r"^\| `'fanin\[(\w+)\]'", table, re.MULTILINE)) == of_all


def test_a_function_that_needs_an_extra_names_it(tmp_path):
    found = _python(
        "import fanin\ntry: fanin.plan('digits_cnn', 'arria10x1')\nexcept fanin.InputError as e: print(e)",
        tmp_path,
    )
    assert found.stdout.endswith(": pip install 'fanin[planner]'\n"), found.stderr


def test_every_extra_is_one_of_the_project_and_says_what_it_adds():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra.name for extra in EXTRAS} | {"all", "docs", "litex", "test", "lint"} == set(declared)
    for extra in EXTRAS:
        for module in extra.modules:
            line = how_to_install(ModuleNotFoundError(name=f"{module}.deeper"))
            assert line.startswith(f"{module} is missing, for {extra.adds}: pip install ")
    assert how_to_install(ModuleNotFoundError(name="nothing")) is None
    assert how_to_install(ModuleNotFoundError()) is None


OLD_PROTOBUF = """
class Old(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "finsy.proto":
            raise ImportError("cannot import name 'runtime_version'", name="google.protobuf")

sys.meta_path[0] = Old()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("p4", "job", "stats"), ("p4", "serve", "aggregation.p4", "--p4info", "out")]
)
def test_packages_that_exclude_each_other_are_named(tmp_path, command):
    """As after pip install p4runtime-shell, which replaces protobuf 6 by 3.20."""
    if command[1] == "serve":
        assert _command(tmp_path, "p4", "emit", "-o", ".").returncode == 0
        command = (*command, "--port", "0=lo")
    code = f"{OLD_PROTOBUF}\nfrom fanin.cli.main import main\nsys.exit(main({list(command)}))"
    found = _python(code, tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"fanin: error: protobuf {version('protobuf')} does not work with finsy 0.")
    assert found.stderr.endswith(" of its own (make p4-shell)\n")
    assert found.stderr.count("\n") == 1


def test_another_import_error_is_not_taken_for_it():
    assert how_to_reinstall(ImportError(name="numpy")) is None
    assert how_to_reinstall(ImportError()) is None
