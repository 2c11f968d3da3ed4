"""``--json``: one object on stdout, of the fields of docs/reference/json.md; every command has it."""

import argparse

import numpy as np
import pytest

from fanin.cli.main import build_parser, main
from tests.fanin.cli.json_page import RIGHT, documented, sections, wrong

#: Commands that end with no result: two serve until they are interrupted, one prints a script.
NO_RESULT = {"board simulate", "completion", "watch"}
RING = "ring train --on model --layers 64,16,10 --nodes 2 --epochs 1 --batch 128"
PS = "ps train --on model --workers 2 --epochs 1 --no-optimum"
SEARCH = "--seconds 0.1 --json"


def commands(parser, name=""):
    """All commands, and their parsers."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield name, parser
    for action in inner:
        for word, each in action.choices.items():
            yield from commands(each, f"{name} {word}".strip())


def test_every_command_that_ends_with_a_result_has_json_and_a_section():
    having = {name for name, parser in commands(build_parser()) if "--json" in parser._option_string_actions}
    assert {name for name, _ in commands(build_parser())} - having == NO_RESULT
    named = {"bench" if name.startswith("bench ") else name for name in having}
    found = {heading.partition(",")[0].removesuffix(" --check") for heading in sections()}
    assert found == named


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with values, the same compressed, and runs."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        np.linspace(-0.1, 0.1, 100, dtype="<f4").tofile("values")
        for line in ("codec encode --codec bfp values coded", f"{RING} -o ring", f"{PS} -o ps"):
            assert main(line.split()) == 0
    return folder


@pytest.fixture
def folder(made, monkeypatch):
    """That folder, in which commands run."""
    monkeypatch.chdir(made)


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        ("ring train", f"{RING} -o again"),
        ("doctor, of ring train", "doctor ring"),
        ("rerun", "rerun ring"),
        ("ps train", f"{PS} -o again2"),
        ("doctor, of ps train", "doctor ps"),
        ("codec encode", "codec encode --codec bfp values coded2"),
        ("codec decode", "codec decode coded back"),
        ("codec stats", "codec stats values"),
        ("codec verify", "codec verify --codec bfp --values 100"),
        ("p4 emit", "p4 emit -o p4"),
        ("verilog", "verilog adder-tree -o tree.v"),
        ("verilog", "verilog glm-node --preset tiny --registers json -o node.json"),
        ("verilog", "verilog adder-tree --package package"),
        ("board list", "board list"),
        ("doctor", "doctor"),
        ("reproduce", "reproduce --list"),
        ("cluster init", "cluster init digits_cnn -o first.npz"),
    ],
)
def test_what_is_printed_is_what_the_page_says(folder, capsys, heading, line):
    assert main([*line.split(), "--json"]) == 0
    documented(heading, capsys.readouterr().out)


@pytest.mark.parametrize("line", ["p4 check --slots 1", "link check"])
def test_a_check_that_does_not_end_prints_its_object(capsys, line):
    main([*line.split(), *SEARCH.split()])
    documented(" ".join(line.split()[:2]), capsys.readouterr().out)


def test_a_run_that_failed_prints_its_object_and_one_line_of_error(folder, capsys):
    assert main(f"{PS} --lr 1e9 --decay 1 --json".split()) == 1
    out, err = capsys.readouterr()
    found = documented("ps train", out)
    assert (err, err.count("\n")) == (f"fanin: error: {found['error']}\n", 1)


def test_bad_input_prints_no_object(folder, capsys):
    assert main(["ring", "train", "none", "--json"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_a_field_that_is_not_as_the_page_says_is_seen():
    right = {"output": "OUT", "codec": "bfp", "values": 3}
    assert wrong("codec decode", right) == RIGHT
    assert wrong("codec decode", right | {"values": True})["mistyped"] == {"values"}
    assert wrong("codec decode", right | {"more": 1})["unknown"] == {"more"}
    assert wrong("codec decode", {"output": "OUT"})["missing"] == {"codec", "values"}
