"""docs/systems/scale.md: its limits are the code's."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fanin.fixed import DEFAULT_FRAC, clamp_bits
from fanin.glm.facts import MAX_DEPTH, MAX_ENGINES, MAX_LANES
from fanin.job import JOBS, SLOTS
from fanin.p4.aggregation import MAX_JOBS, ProgramConfig, Target, register_fields
from fanin.p4.installation import job_installation
from fanin.p4.tofino import STAGES
from fanin.param_server import facts as param_server
from fanin.rdma.facts import MAX_QUEUE_PAIRS
from fanin.ring import facts as ring
from fanin.tree import MAX_LEVELS, MAX_TREE_WORKERS, levels_of, parse_shape, tree_of, workers_of
from fanin.wire.aggregation import (
    AGGREGATION,
    MAX_VALUES,
    MAX_WORKERS,
    ROUND_MAX,
    VALUE_BITS,
    Encap,
    Protocol,
    frame_length,
)
from fanin.wire.ethernet import FCS_BYTES, GAP_BYTES, PREAMBLE_BYTES
from fanin.wire.fields import field_bits

PAGE = (Path(__file__).parents[1] / "docs/systems/scale.md").read_text()
LIMITS = {
    "members of a switch": MAX_WORKERS,
    "levels of a tree": MAX_LEVELS,
    "workers of a tree": MAX_TREE_WORKERS,
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


def section(heading):
    return PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def rows(heading, pattern):
    """Return the cells of the rows under a heading that begin with ``pattern``; numbers without commas."""
    lines = [line for line in section(heading).splitlines() if re.match(rf"\| {pattern}", line)]
    return [[cell.strip().replace(",", "") for cell in line.strip("| ").split(" | ")] for line in lines]


def test_the_table_has_the_limits_of_the_code():
    rows = dict(re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", section("Limits"), re.MULTILINE))
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


@pytest.mark.parametrize(("column", "tree"), [(1, "32"), (2, "32x32"), (3, "16x32x32")])
def test_trees_have_the_sizes_of_the_page(column, tree):
    shape, program = parse_shape(tree), ProgramConfig(workers=MAX_WORKERS, slots=256)
    switches = tree_of(shape, job=1, base=0, slots=256).switches
    sizes = [job_installation(program, switch.part, 0, switch.endpoint) for switch in switches]
    entries, groups = (
        "; ".join(dict.fromkeys(str(len(getattr(size, name))) for size in sizes))
        for name in ("entries", "groups")
    )
    bits = clamp_bits(workers_of(shape))
    levels = f"{levels_of(shape)}; {len(switches)}"
    cells = [levels, str(bits), f"±{2.0 ** (bits - DEFAULT_FRAC):.9g}", entries, groups]
    assert [row[column] for row in rows("Trees by size", "[a-z]")][: len(cells)] == cells
    if column > 1:
        (heading,) = re.findall(rf"([\d,]+): `{tree}`", PAGE)
        assert int(heading.replace(",", "")) == workers_of(shape)


def test_registers_of_a_switch_are_those_of_the_page():
    sizes = rows("Trees by size", r"\d")
    assert len(sizes) >= 2
    for slots, values, bits, megabits in sizes:
        program = ProgramConfig(slots=int(slots), values=int(values), workers=MAX_WORKERS)
        slot_bits = VALUE_BITS * sum(map(len, register_fields(program).values()))
        assert [slot_bits, VALUE_BITS * (int(values) + 7)] == [int(bits)] * 2
        assert int(slots) * slot_bits / 1e6 == pytest.approx(float(megabits), abs=0.005)


def test_an_uplink_carries_the_packets_of_the_page():
    packets = len(Protocol.P4SGD.to_switch)
    bits = 8 * (PREAMBLE_BYTES + frame_length(Encap.L2) + FCS_BYTES + GAP_BYTES)
    loads = rows("Load of an uplink", r"\d")
    assert len(loads) >= 2
    for workers, *cells in loads:
        below = packets * int(workers)
        assert [*map(int, cells)] == [packets, below, packets * bits, below * bits]
    assert f"carries {100_000 / (packets * bits):.0f} AllReduces a µs" in PAGE
