"""Needs of tests: reasons, install commands, counts; sources name known needs and skip in no other way."""

import ast
import os
import re
from pathlib import Path

import pytest

from tests import needs
from tests.needs import NEEDS, Need

TESTS = Path(__file__).parent
SOURCES = {path: path.read_text() for path in sorted(TESTS.rglob("*.py")) if path.name != "needs.py"}
#: First arguments, as ast.unparse writes them, of the skips that no missing need causes.
OTHER_SKIPS = (
    "sys.platform != 'linux'",
    "os.geteuid() == 0",
    "not os.path.exists('/dev/full')",
    '"all layers are the host\'s"',
    "f'no access control lists here: {error}'",
)
IMPLIED = {"iproute2"}  # by namespaces and tap; in the table for its package


def _lacking(**options):
    return Need(lambda: False, **options)


@pytest.fixture
def table(monkeypatch):
    """A table of needs in place of ours."""
    known = {
        "here": Need(lambda: True, apt="here-tools"),
        "viewer": _lacking(apt="viewer-tools"),
        "editor": _lacking(apt="editor-tools", otherwise="or a later editor"),
        "router": _lacking(extra="boards"),
        "core": _lacking(extra="sdram"),
        "FOLDER": _lacking(otherwise="set FOLDER to a folder"),
    }
    monkeypatch.setattr(needs, "NEEDS", known)
    return known


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([], None),
        (["here"], None),
        (["here", "viewer", "router"], "needs viewer (Debian: viewer-tools)"),
        (["router"], "needs router (pip install 'fanin[boards]')"),
        (["FOLDER"], "needs FOLDER (set FOLDER to a folder)"),
    ],
)
def test_the_reason_names_the_first_missing_need_and_its_remedy(table, names, reason):
    assert needs.missing(names) == reason


def test_a_name_that_is_no_need_is_an_error(table):
    with pytest.raises(KeyError, match="viewers"):
        needs.missing(["viewers"])


def test_require_skips_with_the_reason(table):
    needs.require("here")
    with pytest.raises(pytest.skip.Exception, match=r"^needs viewer \(Debian: viewer-tools\)$"):
        needs.require("here", "viewer")


def test_one_apt_line_and_one_pip_line_install_what_is_missing(table):
    *comments, apt, pip = needs.install_commands()
    assert comments == ["# editor: or a later editor", "# FOLDER: set FOLDER to a folder"]
    assert apt == "apt-get install --yes --no-install-recommends editor-tools viewer-tools"
    assert pip.endswith("/pip install --editable '.[boards,sdram]'")


def test_where_nothing_is_missing_nothing_is_installed(monkeypatch):
    monkeypatch.setattr(needs, "NEEDS", {"here": Need(lambda: True, apt="here-tools")})
    assert needs.install_commands() == ["# nothing is missing"]


def test_the_summary_counts_skips_by_need_and_leaves_others_out():
    zsh, tshark = "needs zsh (Debian: zsh)", "needs tshark (Debian: tshark)"
    *counts, last = needs.summary([zsh, tshark, "all layers are the host's", tshark])
    assert [line.split() for line in counts] == [
        ["2", "skipped:", "no", "tshark", "(Debian:", "tshark)"],
        ["1", "skipped:", "no", "zsh", "(Debian:", "zsh)"],
    ]
    assert "make test-tools" in last
    assert needs.summary(["all layers are the host's"]) == []


def test_programs_variables_and_modules_are_probed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MNIST", raising=False)
    assert needs.missing(["tshark"]) == "needs tshark (Debian: tshark)"
    assert needs.missing(["chromium"]) == "needs chromium (Debian: chromium)"
    assert needs.missing(["MNIST"]).startswith("needs MNIST (set MNIST to ")
    for name in ("tshark", "chromium-browser"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("MNIST", str(tmp_path))
    assert needs.missing(["tshark", "chromium", "MNIST"]) is None
    assert needs.chromium() == os.fspath(tmp_path / "chromium-browser")
    assert needs._modules("pytest", "ast")()
    assert not needs._modules("pytest", "no_such_module")()


@pytest.mark.parametrize("name", NEEDS)
def test_every_need_says_how_it_is_met(name):
    assert NEEDS[name].remedy
    assert isinstance(NEEDS[name].met(), bool)


class TestSources:
    """Every test file declares its needs by the marker or by ``require``, and in no other way."""

    @pytest.fixture(scope="class")
    @staticmethod
    def calls():
        """File and line, dotted name and node of each call."""
        return [
            (f"{path.relative_to(TESTS)}:{node.lineno}", ast.unparse(node.func), node)
            for path, text in SOURCES.items()
            if re.search(r"\b(needs|require|skip|skipif|importorskip)\(", text)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call)
        ]

    def test_every_name_is_a_known_need(self, calls):
        declared = [
            (place, argument)
            for place, name, node in calls
            if name in ("pytest.mark.needs", "require")
            for argument in node.args
        ]
        assert len(declared) > 50
        known = [place for place, name in declared if isinstance(name, ast.Constant) and name.value in NEEDS]
        assert [place for place, _ in declared] == known

    def test_each_need_is_used(self, calls):
        used = {
            argument.value
            for _, name, node in calls
            if name in ("pytest.mark.needs", "require")
            for argument in node.args
        }
        assert set(NEEDS) - used == IMPLIED

    def test_skips_in_another_way_are_not_for_a_need(self, calls):
        skips = ("pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.importorskip")
        found = [
            (place, ast.unparse(node.args[0]) if node.args else "")
            for place, name, node in calls
            if name in skips
        ]
        assert [(place, reason) for place, reason in found if reason not in OTHER_SKIPS] == []
