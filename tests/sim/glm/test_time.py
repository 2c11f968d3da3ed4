"""The time of an epoch, beside what the page says that the RTL took."""

import re
from pathlib import Path

import pytest

from fanin.glm.facts import PRESETS, TrainShape
from fanin.sim.glm.time import EpochTime

PAGE = (Path(__file__).parents[3] / "docs/systems/scale.md").read_text()


def epoch(workers, columns, *, samples, switches=1):
    shape = TrainShape(
        node=PRESETS["u280"], workers=workers, samples=samples, columns=columns, batch=64, precision=4
    )
    return EpochTime(shape=shape, switches=switches)


def rows(heading):
    """The numbers of each row of the table behind a heading."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [re.findall(r"[\d,]+(?:\.\d+)?", line) for line in table.splitlines() if re.match(r"\| \d", line)]
    return [[float(cell.replace(",", "")) for cell in line] for line in cells]


def test_the_model_is_that_of_the_page_and_near_the_rtl():
    measured = rows("Beside the RTL")
    assert len(measured) >= 2
    for workers, columns, samples, rtl, model, _ in measured:
        time = epoch(int(workers), int(columns), samples=int(samples))
        assert time.cycles == model
        assert time.cycles == pytest.approx(rtl, rel=0.01)


def test_the_page_has_the_model_beyond_one_switch():
    for workers, *cycles in rows("64 and 128 workers"):
        switches = int(workers) // 32
        for columns, wide, tree in zip((1 << 16, 1 << 20), cycles[::2], cycles[1::2], strict=True):
            apart = epoch(32, columns // switches, samples=64, switches=switches)
            together = epoch(32, columns // switches, samples=64)
            assert (together.cycles, apart.cycles) == (wide, tree)


def test_a_tree_of_switches_takes_three_switches_and_four_links():
    tree, one = epoch(32, 4096, samples=64, switches=2), epoch(32, 4096, samples=64)
    assert one.allreduce_cycles == 154
    assert tree.allreduce_cycles == 407
    assert tree.cycles - one.cycles == 407 - 154
