"""The lists of docs/ARCHITECTURE.md, "To add something", name every place and no other; a limit stands once."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("fanin", "hdl", "p4", "planner", "sim")

#: What stands at each place that an addition has to touch: a branch or a table by member.
BRANCHES = {
    "A loss": r"\bLoss\.HINGE\b(?!, )",
    "A layer": r"\bRelu6\b|\"relu6\"",
    "A codec": r"\bcase Bfp\(\)|\bCodec\.BFP\b",
    "A switch target": r"\bTarget\.TNA\b",
}

NARROW = """
from dataclasses import replace
from fanin.wire import aggregation
bits = {"slot": 12, "round": 36}
aggregation.AGGREGATION = tuple(replace(f, bits=bits.get(f.name, f.bits)) for f in aggregation.AGGREGATION)
from fanin.job import SLOTS
from fanin.glm.facts import GlmConfig
from fanin.hdl.aggregation.job import SLOT_BITS, JobConfig
from fanin.hdl.aggregation.slots import check_slots
from fanin.p4.aggregation import ProgramConfig
print(SLOTS, SLOT_BITS)
node, switch = (lambda n: GlmConfig(name="", slots=n)), (lambda n: ProgramConfig(slots=n, values=1))
for takes in (check_slots, node, switch):
    takes(4096)
    try:
        takes(8192)
    except ValueError as error:
        print(error)
"""


def _listed(what):
    """The files that the item of ``what`` names, tests and pages apart."""
    page = (ROOT / "docs/ARCHITECTURE.md").read_text()
    item = re.search(rf"^- \*\*{what}\*\*:(.*?)(?=^- \*\*|^## )", page, re.MULTILINE | re.DOTALL)[1]
    return {path for path in re.findall(r"`([\w/]+\.py)`", item) if not path.startswith("tests/")}


def _branching(pattern):
    files = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    found = {str(file.relative_to(ROOT)) for file in files if re.search(pattern, file.read_text())}
    return {path for path in found if "/bench/" not in path}


@pytest.mark.parametrize("what", BRANCHES)
def test_every_place_that_tells_members_apart_is_listed(what):
    assert _branching(BRANCHES[what]) - _listed(what) == set()


@pytest.mark.parametrize("what", [*BRANCHES, "A limit"])
def test_what_is_listed_exists(what):
    assert len(_listed(what)) >= 2
    assert [path for path in _listed(what) if not (ROOT / path).exists()] == []


def test_a_limit_that_is_changed_where_it_stands_changes_everywhere():
    """A packet whose slot has 12 bits: switch, node, registers and program have fewer slots, and say so."""
    done = subprocess.run([sys.executable, "-c", NARROW], capture_output=True, text=True, cwd=ROOT, check=True)
    first, *refusals = done.stdout.splitlines()
    assert first == "4096 12"
    assert len(refusals) == 3
    assert all("4096" in line for line in refusals)
