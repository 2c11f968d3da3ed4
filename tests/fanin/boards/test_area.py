"""The area model: against what nextpnr has counted, and what it refuses."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fanin.base.errors import DoesNotFit
from fanin.boards.area import check_fits, node_area
from fanin.boards.facts import DEVICES, MEMORIES, SPARSE_MEMORIES
from fanin.evaluation.bench.board_area import CASES
from fanin.evaluation.bench.ecp5 import pack
from fanin.glm.facts import PRESETS
from fanin.hdl.emission import kept_verilog
from fanin.hdl.glm.node import GlmNode
from fanin.wire.aggregation import Encap

#: Written by ``fanin bench board-area -o tests/fanin/boards/area.toml``.
MEASURED = tomllib.loads(Path(__file__).with_name("area.toml").read_text())
LOGIC = ("luts", "flip_flops")


def check_against(used, case):
    predicted = vars(node_area(CASES[case]))
    assert {name: predicted[name] for name in used if name not in LOGIC} == {
        name: number for name, number in used.items() if name not in LOGIC
    }
    for name in LOGIC:
        assert predicted[name] == pytest.approx(used[name], rel=0.15), name


def test_what_is_measured_is_a_case():
    assert MEASURED
    assert MEASURED.keys() <= CASES.keys()


@pytest.mark.parametrize("case", MEASURED)
def test_the_model_is_within_15_percent_of_what_was_counted(case):
    check_against(MEASURED[case], case)


@pytest.mark.slow
def test_what_was_counted_is_what_nextpnr_counts_today():
    """Minutes of yosys."""
    used = vars(pack(kept_verilog(GlmNode(config=CASES["4 lanes"]), name="glm_node"), "glm_node"))
    assert used == pytest.approx(MEASURED["4 lanes"], rel=0.05)
    check_against(used, "4 lanes")


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("encap", Encap)
def test_each_preset_fits_its_device_and_all_larger_ones(name, encap):
    devices = list(DEVICES)
    for device in devices[devices.index(name) :]:
        check_fits(replace(PRESETS[name], encap=encap), device, MEMORIES[name])


@pytest.mark.parametrize(
    ("changes", "device", "message"),
    [
        (
            {"lanes": 16},
            "ecp5-25",
            r"ecp5-25: about [\d,]+ LUTs are needed, [\d,]+ more than .*; --preset ecp5-25 fits",
        ),
        ({"depth": 4096}, "ecp5-25", r"block RAMs are needed, [\d,]+ more than an ecp5-25 has to give"),
        ({"lanes": 64, "engines": 2}, "ecp5-85", "LUTs are needed, .*; --preset ecp5-85 fits"),
    ],
)
def test_what_does_not_fit_is_named_with_what_does(changes, device, message):
    with pytest.raises(DoesNotFit, match=message):
        check_fits(replace(PRESETS["ecp5-25"], **changes), device, MEMORIES["ecp5-25"])


def test_memories_count_too():
    large = replace(MEMORIES["ecp5-25"], sample_bytes=64 * 1024)
    with pytest.raises(DoesNotFit, match="block RAMs"):
        check_fits(PRESETS["ecp5-25"], "ecp5-25", large)
    assert MEMORIES["ecp5-25"].block_rams(1) == 8 + 8 + 4


@pytest.mark.parametrize("name", MEMORIES)
def test_a_sparse_node_has_as_much_block_ram_as_a_dense_one_and_fits(name):
    assert SPARSE_MEMORIES[name].block_rams(1) == MEMORIES[name].block_rams(1)
    node = replace(PRESETS[name], encap=Encap.UDP, sparse=True)
    check_fits(node, name, SPARSE_MEMORIES[name])
    dense = replace(node, sparse=False)
    assert node_area(node).luts > node_area(dense).luts + 500
