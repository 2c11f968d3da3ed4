"""The mutation lane: what it changes, which tests it asks, and that it leaves the tree alone."""

import random
import subprocess

import pytest

from tests.mutation.lane import Lane, Mutant, beside, sample
from tests.mutation.mutations import mutations


def texts(source):
    return {each.apply(source).strip() for each in mutations(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {"((a) <= (b))"}),
        ("a == b", {"((a) != (b))"}),
        ("a & ~b", {"(a)", "(~b)", "a & (b)"}),
        ("a and b", {"(a)", "(b)"}),
        ("a - b", {"((a) + (b))", "((b) - (a))"}),
        ("f(3)", {"f(4)", "f((2))"}),
        ("Mux(a, b, c)", {"Mux((a), (c), (b))"}),
        ("m.d.sync += a", {"pass"}),
        ("x: Optional[1] = a", set()),
        ("zip(a, b, strict=True)", set()),
        ('raise ValueError(f"{1}")', set()),
        ('"""1 < 2"""', set()),
        ('"ä"; a < b', {'"ä"; ((a) <= (b))'}),
    ],
)
def test_small_changes_and_nothing_else(source, expected):
    assert texts(source) == expected


TEST = "from fanin.hdl.part import part\n\ndef test_part():\n    assert part(2, {}) == {}\n"


@pytest.fixture
def tree(tmp_path):
    """A package with a function, and a test that sees less than it should."""
    files = {
        "fanin/__init__.py": "",
        "hdl/__init__.py": "",
        "hdl/part.py": "def part(a, b):\n    return a + b\n",
        "p4/__init__.py": "",
        "planner/__init__.py": "",
        "sim/__init__.py": "",
        "tests/__init__.py": "",
        "tests/hdl/__init__.py": "",
        "tests/hdl/test_other.py": "def test_nothing():\n    assert False\n",
        "tests/hdl/test_part.py": TEST.format(0, 2),
    }
    for name, text in files.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "tree", check=True)
    return tmp_path / "tree"


def test_the_tests_beside_a_source_are_those_beside_it_that_name_it(tree):
    assert beside(tree, "hdl/part.py") == ["tests/hdl/test_part.py"]
    assert beside(tree, "hdl/__init__.py") == ["tests/hdl"]
    assert beside(tree, "sim/__init__.py") == ["tests"]


def test_a_mutant_is_noticed_or_survives_and_the_tree_stays_as_it_is(tree, tmp_path):
    before = (tree / "hdl/part.py").read_text()
    (mutant,) = sample(tree, ["hdl"], 5, random.Random(1))
    assert str(mutant) == "hdl/part.py:2: a + b  ->  ((a) - (b))"
    (tmp_path / "copy").mkdir()
    lane = Lane(tree, tmp_path / "copy", seed=1)
    assert not lane.notices(mutant)
    (tmp_path / "copy/tests/hdl/test_part.py").write_text(TEST.format(1, 3))
    assert lane.notices(mutant)
    assert (tree / "hdl/part.py").read_text() == (tmp_path / "copy/hdl/part.py").read_text() == before


def test_tests_that_fail_before_anything_is_broken_are_an_error(tree, tmp_path):
    (tmp_path / "copy").mkdir()
    broken = Mutant("hdl/__init__.py", mutations("a < b")[0])
    with pytest.raises(RuntimeError, match="unbroken, but not passed within 600 s: tests/hdl"):
        Lane(tree, tmp_path / "copy", seed=1).notices(broken)
