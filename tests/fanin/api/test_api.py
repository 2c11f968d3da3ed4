"""``import fanin``: what it gives, how soon, and what its page says."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fanin

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/python.md"


def test_names_types_and_page_agree():
    lazy = fanin._LAZY
    stub = ast.parse((ROOT / "fanin/__init__.pyi").read_text())
    typed = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    of_runs = {node.name: lazy[node.name] for node in stub.body if isinstance(node, ast.FunctionDef)}
    named = {name: module for name, module in (typed | of_runs).items() if name in fanin.__all__}
    assert named == lazy | {"CheckFailed": "fanin.base.errors", "InputError": "fanin.base.errors"}
    for name, module in lazy.items():
        assert getattr(fanin, name) is getattr(importlib.import_module(module), name)
    assert set(re.findall(r"^\| `fanin\.(\w+)\(", PAGE.read_text(), re.MULTILINE)) | {"components"} == set(lazy)


def test_it_loads_what_is_named_and_no_more():
    heavy = ("numpy", "amaranth", "scipy", "sklearn", "ortools")
    code = f"import sys, fanin; print([name for name in {heavy} if name in sys.modules]); fanin.nothing"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout == "[]\n"
    assert found.stderr.endswith("AttributeError: module 'fanin' has no attribute 'nothing'\n")


def _blocks():
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_lines_of_its_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = [block for block in _blocks() if "# slow" not in block]
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert {"gradient.bfp", "node.v", "build"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_the_slow_lines_of_its_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in _blocks():
        exec(compile(block, str(PAGE), "exec"), names)
