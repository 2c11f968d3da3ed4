"""``fanin verilog NAME --package DIR`` at the command line: whole or not at all, and bad input."""

import json
import sys

import pytest

from fanin.cli.main import main
from fanin.hdl.package import package as packages

NAME = "adder-tree"
FILES = {
    *(f"adder_tree.{suffix}" for suffix in ("v", "xdc", "sdc", "lpf", "core")),
    *("adder_tree_harness.v", "component.xml", "package.json"),
}
WRITTEN = FILES | {".files.json", "provenance.json"}


def run(capsys, *arguments):
    status = main(["verilog", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def folder(capsys, tmp_path):
    """A package that has been written."""
    assert run(capsys, NAME, "--package", tmp_path / "made", "--set", "inputs=4")[0] == 0
    return tmp_path / "made"


def test_a_package_is_written_and_its_mark_says_what_it_is(folder):
    assert names(folder) == WRITTEN
    mark = json.loads((folder / "package.json").read_text())
    assert (mark["package"], mark["settings"], mark["clock_mhz"]) == (NAME, {"inputs": "4"}, 250.0)
    assert {*mark["files"]} == FILES - {"package.json"}
    assert "inputs=4" in (folder / "adder_tree.v").read_text().partition("module")[0]


def test_json_names_the_files(capsys, tmp_path):
    status, out, err = run(capsys, NAME, "--package", tmp_path / "made", "--json")
    assert (status, err) == (0, "")
    assert {*json.loads(out)["files"]} == FILES


def test_a_second_one_takes_the_first_one_s_place_and_leaves_what_is_not_its_own(capsys, folder):
    (folder / "notes.txt").write_text("mine")
    before = (folder / "adder_tree.v").read_text()
    assert run(capsys, NAME, "--package", folder, "--clock-mhz", "125")[0] == 0
    assert names(folder) == WRITTEN | {"notes.txt"}
    assert (folder / "adder_tree.v").read_text() != before
    assert "125 MHZ" in (folder / "adder_tree.lpf").read_text()


def test_nothing_is_left_of_one_that_fails_half_way(capsys, folder, monkeypatch):
    before = {path.name: path.read_text() for path in folder.iterdir()}

    def broken(*arguments, **options):
        return {"adder_tree.v": "module", "component.xml": None}

    monkeypatch.setattr(packages, "package", broken)
    with pytest.raises(TypeError):
        run(capsys, NAME, "--package", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    assert names(folder.parent) == {"made"}


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (["nothing", "--package", "made"], "no component 'nothing'; there are glm-node, "),
        ([NAME, "--package", "made", "-o", "x.v"], "--package and -o cannot be given together"),
        ([NAME, "--package", "made", "--registers", "c"], "--package and --registers cannot be given together"),
        (["--list", "--package", "made"], "--package and --list cannot be given together"),
        ([NAME, "--clock-mhz", "100"], "--clock-mhz is for --package"),
        ([NAME, "--package", "made", "--clock-mhz", "0"], "clock-mhz must be in [1, 1000], not 0"),
        ([NAME, "--package", "made", "--clock-mhz", "nan"], "clock-mhz must be in [1, 1000], not nan"),
        ([NAME, "--package", "made", "--set", "radix=9"], "radix must be from 2 to 4, not 9"),
        ([NAME, "--package", "file"], "file: is a file"),
        ([NAME, "--package", "others"], "others: exists and holds no package.json of an earlier package"),
        ([NAME, "--package", "file/made"], "file/made: cannot be written"),
    ],
)
def test_bad_input_takes_one_line_and_nothing_is_written(capsys, tmp_path, monkeypatch, options, cause):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "others").mkdir()
    (tmp_path / "others/thesis.tex").touch()
    status, out, err = run(capsys, *options)
    assert (status, out) == (2, "")
    assert err.startswith(f"fanin: error: {cause}")
    assert err.count("\n") == 1
    assert names(tmp_path) == {"file", "others"}
    assert names(tmp_path / "others") == {"thesis.tex"}


def test_the_package_of_another_component_is_refused(capsys, folder):
    status, _, err = run(capsys, "loss-unit", "--package", folder)
    assert status == 2
    assert err == f"fanin: error: {folder}: holds a package of adder-tree; choose another --package\n"
    assert names(folder) == WRITTEN


def test_a_folder_is_refused_before_the_component_is_emitted(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "package", lambda *arguments, **options: sys.exit("emitted"))
    (tmp_path / "thesis.tex").touch()
    assert run(capsys, NAME, "--package", tmp_path)[0] == 2
