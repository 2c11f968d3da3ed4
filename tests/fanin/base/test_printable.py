"""What comes from outside controls no terminal, and is no formula in a spreadsheet."""

import io
import os
import pty
import subprocess
import sys
import time
import traceback
import unicodedata
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from fanin.api.folder import Folder
from fanin.base.errors import CheckFailed, DoesNotFit, InputError, ToolFailed
from fanin.base.printable import _FORMULA, Printable, cell, print_note, printable, terminal
from fanin.cli.main import main
from fanin.runs.unfinished import raise_stop

CLEAR, TITLE, TURN = "\x1b[2J", "\x1b]0;owned\x07", "\u202e"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"a{CLEAR}b", r"a\x1b[2Jb"),
        (TITLE, r"\x1b]0;owned\x07"),
        ("\x9b31m", r"\x9b31m"),
        (f"abc{TURN}def", r"abc\u202edef"),
        ("one\rtwo", r"one\rtwo"),
        ("\x7f\x00\ud800", r"\x7f\x00\ud800"),
        ("two\n lines\tand ünïcödé ─ 🙂", "two\n lines\tand ünïcödé ─ 🙂"),
    ],
)
def test_controls_are_escapes_and_all_else_is_as_it_was(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize("kind", [InputError, DoesNotFit, ToolFailed, CheckFailed])
def test_an_error_and_its_traceback_are_printable(kind):
    error = kind(f"labels are words ({CLEAR}{TURN}a, ü):\nthe loss needs numbers")
    assert str(error) == r"labels are words (\x1b[2J\u202ea, ü):" + "\nthe loss needs numbers"
    assert "\x1b" not in "".join(traceback.format_exception(error))


def test_a_run_in_a_notebook_or_at_a_prompt_is_printable(tmp_path, monkeypatch):
    (tmp_path / "run.json").write_text("{}")
    monkeypatch.setattr(Folder, "mark", "run.json", raising=False)
    run = Folder(tmp_path, f"classes {TITLE} and b\nbit-exact")
    assert repr(run) == run.said == "classes \\x1b]0;owned\\x07 and b\nbit-exact"
    assert "\x1b" not in run._repr_html_()


def test_no_character_that_unicode_calls_a_control_gets_through():
    """Cc apart from tab and line feed, line and paragraph separators, and what turns direction."""
    turns = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        bad = unicodedata.category(char) in {"Cc", "Zl", "Zp", "Cs"} or unicodedata.bidirectional(char) in turns
        if bad and char not in "\t\n":
            assert printable(char).isascii()
            assert len(printable(char)) > 1


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_file_s_words_reach_a_terminal_as_escapes(tmp_path, capsys, stream):
    """Column names and labels on stdout, and in an error on stderr."""
    labels = np.array([f"no{CLEAR}", f"yes{TITLE}"])[np.arange(40) % 2]
    path = tmp_path / "set.npz"
    if stream == "err":
        path = tmp_path / f"no{CLEAR}such.csv"
        assert main(["train", str(path)]) == 2
    else:
        np.savez(path, X=np.random.default_rng(0).normal(size=(40, 3)), y=labels)
        assert main(["train", str(path), "--loss", "linear"]) == 2  # labels are words: they are named
        stream = "err"
    said = getattr(capsys.readouterr(), stream)
    assert r"\x1b" in said
    assert "\x1b" not in said
    assert said.count("\n") == 1


def test_an_error_of_a_p4_program_is_printable(tmp_path, capsys):
    (tmp_path / "x.p4").write_text(f'#error "{CLEAR}"\n')
    (tmp_path / "x.stf").write_text("")
    assert main(["p4", "stf", str(tmp_path / "x.p4"), str(tmp_path / "x.stf")]) == 2
    said = capsys.readouterr().err
    assert r"\x1b[2J" in said
    assert "\x1b" not in said


def test_streams_are_as_before_when_a_command_has_ended():
    before = sys.stdout, sys.stderr
    assert main(["no such command"]) == 2
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_takes_output_without_an_error(redirection):
    command = f"'{sys.executable}' -P -m fanin verilog --list {redirection}"
    ended = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_what_draws_on_purpose_goes_round(monkeypatch):
    inner = io.StringIO()
    monkeypatch.setattr(sys, "stderr", Printable(inner))
    print(CLEAR, end="", file=sys.stderr)
    print(CLEAR, end="", file=terminal())
    assert inner.getvalue() == r"\x1b[2J" + CLEAR


def test_a_bar_still_moves_on_a_terminal(tmp_path):
    """stderr is a pseudo terminal: tqdm's carriage returns are there, as such."""
    np.save(tmp_path / "values.npy", np.zeros(1 << 20, np.float32))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fanin", "codec", "stats", str(tmp_path / "values.npy")]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, timeout=60)
    os.close(theirs)
    seen = os.read(ours, 1 << 16)
    os.close(ours)
    assert done.returncode == 0
    assert rb"\r" not in seen
    assert b" values" in seen.split(b"\r")[1]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-x", "@SUM(A1)", "＝1", ' "=1', "\tx", "\rx"])
def test_a_cell_is_no_formula(text):
    assert cell(text) == f"'{text}"
    assert cell("a" + text) == "a" + text


@pytest.mark.parametrize("separator", [";", ",", "|", "\t", "\r", "\n"])
def test_no_part_of_a_cell_is_a_formula_in_a_spreadsheet_with_another_separator(separator):
    assert cell(f"x{separator}=1") == f"x{separator}'=1"
    assert (
        cell(f'x{separator} ""@a{separator}y{separator}-1') == f"x{separator}' \"\"@a{separator}y{separator}'-1"
    )
    assert cell(f"x{separator}y=1") == f"x{separator}y=1"


@pytest.mark.parametrize("space", ["\t", " ", '"'])
def test_a_cell_of_very_many_spaces_is_no_formula_and_takes_no_time(space):
    start = time.process_time()
    assert cell(space * 40_000 + "=1").startswith("'" + space)
    assert cell("a," + space * 65 + "=1").startswith("a,'" + space)
    assert cell("a" + " " * 65) == "a" + " " * 65
    assert time.process_time() - start < 1


def test_a_chart_that_is_saved_as_csv_has_the_same_rule():
    script = resources.files("fanin.report").joinpath("charts.js").read_text()
    assert f"const formula = /{_FORMULA.pattern}/g;" in script


def test_an_input_error_is_one_line_whatever_it_holds(capsys, monkeypatch):
    def fail(args):
        raise InputError("a\nb\u2028c\x85d")

    monkeypatch.setattr("fanin.cli.main.run_on_ranks", fail)
    assert main(["verilog", "--list"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_notes_of_the_python_api_are_printable(tmp_path, capsys):
    """An ONNX file's name of a node, in a warning of ``fanin.plan``; no command's stream is around it."""
    print_note(f"a{TITLE}b")
    with pytest.raises(KeyboardInterrupt, match=r"^a\\x1b\[2Jb$"):
        raise_stop(KeyboardInterrupt(), f"a{CLEAR}b")
    with pytest.raises(SystemExit):
        raise_stop(SystemExit(1), f"c{CLEAR}d")
    assert capsys.readouterr().err == "a\\x1b]0;owned\\x07b\nfanin: error: c\\x1b[2Jd\n"


def test_no_module_of_the_python_api_prints_to_stderr_itself():
    root = Path(__file__).parents[3]
    apart = (
        "fanin/cli/",
        "fanin/evaluation/",
        "fanin/campaign/",
        "fanin/base/printable.py",
        "sim/param_server/accuracy",
    )
    paths = [
        path for folder in ("fanin", "sim", "planner", "hdl", "p4") for path in (root / folder).rglob("*.py")
    ]
    named = {str(path.relative_to(root)) for path in paths if "file=sys.stderr" in path.read_text()}
    assert not [name for name in named if not name.startswith(apart)]
