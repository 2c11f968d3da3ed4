"""docs/systems/scale.md: its limits are the code's."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fanin.fixed import clamp_bits
from fanin.glm.facts import MAX_DEPTH, MAX_ENGINES, MAX_LANES
from fanin.job import JOBS, SLOTS
from fanin.p4.aggregation import MAX_JOBS, ProgramConfig, Target
from fanin.p4.tofino import STAGES
from fanin.param_server import facts as param_server
from fanin.rdma.facts import MAX_QUEUE_PAIRS
from fanin.ring import facts as ring
from fanin.wire.aggregation import AGGREGATION, MAX_VALUES, MAX_WORKERS, ROUND_MAX
from fanin.wire.fields import field_bits

PAGE = (Path(__file__).parents[1] / "docs/systems/scale.md").read_text()
LIMITS = {
    "workers of a job": MAX_WORKERS,
    "jobs by id": JOBS,
    "jobs of a switch at a time": MAX_JOBS,
    "slots of a switch": SLOTS,
    "slots of a job at a node": SLOTS,
    "values of a packet": MAX_VALUES,
    "uses of a slot": ROUND_MAX,
    "bits of a PA with 32 workers, sign apart": clamp_bits(MAX_WORKERS),
    "stages of Tofino's ingress": STAGES,
    "columns of a node": MAX_ENGINES * MAX_LANES * MAX_DEPTH,
    "nodes of a ring": ring.MAX_NODES,
    "workers of a parameter server": param_server.MAX_WORKERS,
    "of these, of a server in RTL": MAX_QUEUE_PAIRS,
}


def test_the_table_has_the_limits_of_the_code():
    table = PAGE.partition("## Limits\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", table, re.MULTILINE))
    assert {name: int(number.replace(",", "")) for name, number in rows.items()} == LIMITS


def test_as_many_workers_as_the_bitmap_has_bits():
    assert field_bits(AGGREGATION, "bitmap") == MAX_WORKERS


@pytest.mark.parametrize(("slots", "values"), [(1 << 15, 32), (1 << 16, 16)])
def test_tofino_holds_what_the_page_says(slots, values):
    """And not a value more, where the packet would have room for it."""
    program = ProgramConfig(target=Target.TNA, slots=slots, values=values, workers=MAX_WORKERS)
    assert f"{slots:,} slots of {values} values" in PAGE
    assert program.stages <= STAGES
    if values < MAX_VALUES:
        with pytest.raises(ValueError, match="stages"):
            replace(program, values=values + 1)
