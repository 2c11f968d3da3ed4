"""What nextpnr writes, as domains, Components and clocks."""

import json

import pytest

from fanin.base.errors import InputError
from fanin.hdl.boards.build import ROUTED, TIMING
from fanin.hdl.boards.report import RESOURCES, component_of, domain_of, read_report


@pytest.mark.parametrize(
    ("net", "domain"),
    [
        ("posedge $glbnet$clk", "sync"),
        ("$glbnet$clocks.tx_clk", "tx"),
        ("$glbnet$mac.gather.rx_clk", "rx"),
        ("posedge $glbnet$rx_reset.async_ff_clk", "rx"),
    ],
)
def test_a_clocks_net_is_its_domain(net, domain):
    assert domain_of(net) == domain


@pytest.mark.parametrize(
    ("cell", "component"),
    [
        ("mac.rx_store.place_TRELLIS_FF_Q_2", "mac.rx_store.place"),
        ("node.node.worker.engine_LUT4_Z_D_PFUMX_Z", "node.node.worker.engine"),
        ("mac.rx_store.storage.0.0", "mac.rx_store.storage.0.0"),
        ("c_TRELLIS_FF_Q_20_DI_CCU2C_S1$CCU2_COMB0", "c"),
    ],
)
def test_a_cell_is_named_by_what_it_was_made_of(cell, component):
    assert component_of(cell) == component


def part(kind, cell, to, delay):
    return {"type": kind, "delay": delay, "from": {"cell": cell}, "to": {"cell": to}}


def written(folder, reached, net="$glbnet$clocks.tx_clk"):
    a, b = "mac.x_TRELLIS_FF_Q", "mac.y_TRELLIS_FF_Q"
    path = [part("clk-to-q", a, a, 0.5), part("routing", a, "l", 2), part("logic", "l", "l", 0.25)]
    path.append(part("routing", "l", b, 1))
    clock = f"posedge {net}"
    timing = {
        "fmax": {net: {"constraint": 12, "achieved": reached}},
        "critical_paths": [
            {"from": clock, "to": clock, "path": path},
            {"from": clock, "to": "<async>", "path": path},
        ],
        "utilization": {name: {"used": 2, "available": 8} for name in RESOURCES},
    }
    cells = {a: {"type": "TRELLIS_FF"}, b: {"type": "TRELLIS_FF"}, "l": {"type": "OTHER"}}
    (folder / TIMING).write_text(json.dumps(timing))
    (folder / ROUTED).write_text(json.dumps({"modules": {"top": {"cells": cells}}}))


@pytest.mark.parametrize(("reached", "met"), [(125.0, True), (124.9, False)])
def test_a_line_clock_must_reach_what_rgmii_asks(tmp_path, reached, met):
    written(tmp_path, reached)
    placed = read_report(tmp_path, 50.0)
    (clock,) = placed.clocks
    assert (clock.domain, clock.required_mhz, clock.is_met) == ("tx", 125.0, met)
    assert (clock.slack_ns >= 0) == met
    assert [str(path) for path in placed.paths] == [
        "mac.x -> mac.y (tx): 3.8 ns, 0.8 in 1 cells and 3.0 on wires"
    ]
    assert placed.used["LUT4"] == (2, 8)
    assert placed.components == {"mac": {"flip-flops": 2}}


@pytest.mark.parametrize(("net", "asked"), [("$glbnet$clk", 50.5), ("$glbnet$pll.fast", 125.0)])
def test_a_clock_is_held_to_the_boards_not_to_nextpnrs_constraint(tmp_path, net, asked):
    """12 MHz is what nextpnr takes where no constraint has reached it."""
    for reached in (asked - 0.1, asked):
        written(tmp_path, reached, net)
        (clock,) = read_report(tmp_path, 50.5).clocks
        assert (clock.required_mhz, clock.is_met) == (asked, reached == asked)


def test_a_folder_without_a_report_is_bad_input(tmp_path):
    with pytest.raises(InputError, match=r"top\.timing\.json: No such file .*fanin board build writes it"):
        read_report(tmp_path, 50.0)


@pytest.mark.parametrize(
    "timing", ["", "{}", "[]", '{"fmax": {"clk": 3}}', '{"fmax": {}, "critical_paths": [{}]}']
)
def test_a_report_that_is_broken_is_bad_input(tmp_path, timing):
    written(tmp_path, 125.0)
    (tmp_path / TIMING).write_text(timing)
    with pytest.raises(InputError, match="nextpnr's report cannot be read"):
        read_report(tmp_path, 50.0)
