"""Tutorials, word for word: every command and every line of Python, in a folder that is empty at first."""

import contextlib
import io
import shlex
import shutil
from pathlib import Path

import pytest

from fanin.cli.main import build_parser
from tests.installs import blocks, shell

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/tutorials"
PAGES = sorted([*FOLDER.glob("*.md"), ROOT / "docs/start.md", ROOT / "docs/howto.md"])
#: Those that take more than some seconds, since they build simulators or search.
SLOW = {"cluster", "fpga", "ml", "reviewer"}


def steps(page):
    """What a reader does, in order: (what, text), where ``what`` is "sh", "python" or a file to write."""
    for language, title, text in blocks(page):
        if title:
            yield title, text
        elif language in ("sh", "python"):
            yield language, text


def _python(text, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(text, names)
    return out.getvalue()


def follow(page, folder):
    """Do all that a page says, in ``folder``, which is the working directory; what was printed."""
    names, outputs = {}, []
    for what, text in steps(page):
        if what == "sh":
            outputs.append(shell(text, folder))
        elif what == "python":
            outputs.append(_python(text, names))
        else:
            (folder / what).parent.mkdir(parents=True, exist_ok=True)
            (folder / what).write_text(text)
    return outputs


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW))
        for page in sorted(FOLDER.glob("*.md"))
    ],
)
def test_a_tutorial_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")  # a reader has a clone
    outputs = follow(page, tmp_path)
    assert len(outputs) >= 3
    printed = "".join(outputs).splitlines()
    shown = [text for language, _, text in blocks(page) if language == "text"]
    commands = ("fanin ", "gtkwave ", "surfer ", "…")
    lines = [line for text in shown for line in text.splitlines() if not line.startswith(commands)]
    assert [line for line in lines if line and line not in printed] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_that_are_only_shown_exist(page):
    for language, _, text in blocks(page):
        for line in text.splitlines() if language == "text" else ():
            if line.startswith("fanin ") and not line.startswith("fanin: "):
                build_parser().parse_args(shlex.split(line.partition("#")[0])[1:])


def test_there_is_a_tutorial_for_each_kind_of_user():
    assert {page.stem for page in FOLDER.glob("*.md")} == {"cluster", "fpga", "ml", "p4", "reviewer"}
