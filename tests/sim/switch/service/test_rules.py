"""docs/reference/p4runtime.md: each rule of its tables names tests, and all of them exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/reference/p4runtime.md"
SECTIONS = 7


def test_each_rule_names_tests_that_exist():
    text = PAGE.read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    rules = [row for row in rows if row[0].strip() != "Rule"]
    assert len(rows) - len(rules) == SECTIONS
    assert len(rules) > 50
    assert all(len(row) == 3 and all(cell.strip() for cell in row) for row in rows)
    named = {name for row in rules for name in re.findall(r"`(test_\w+)`", row[2])}
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests/sim/switch").rglob("test_*.py")
    )
    known = set(re.findall(r"^ *def (test_\w+)\(", sources, re.M))
    assert named <= known, sorted(named - known)
    assert sum(row[2].strip() == "none" for row in rules) <= 2
