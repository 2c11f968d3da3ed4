"""The page of a plan: everything of the plan is in it, and its charts are to scale."""

import re
from html import escape

import pytest

from fanin.cnn.plan.page.charts import (
    RESOURCES,
    by_factor,
    figure,
    kind_chart,
    kind_shares,
    percent,
    sweep_chart,
    utilisation_charts,
)
from fanin.cnn.plan.page.page import plan_page
from tests.fanin.report.drawn import bars, names, outside, own, points, rows
from tests.fanin.report.plans import make_plan, make_sweep


def page_of(*args):
    """The page without the charting library's source, in which any word may stand."""
    return own(plan_page(*args))


@pytest.mark.parametrize("count", [1, 4, 9, 40])
def test_bars_are_as_high_as_the_utilisation(count):
    plan, _ = make_plan(count, 200)
    charts = [chart.figure() for chart in utilisation_charts(plan)]
    assert len(charts) == -(-count // 16)
    drawn = {}
    for chart in charts:
        devices = chart["layout"]["xaxis"]["ticktext"]
        assert [shape["y0"] for shape in chart["layout"]["shapes"]] == [1.0]
        assert chart["layout"]["yaxis"]["range"][0] == 0
        drawn |= {(devices[bar.place], bar.series): bar.size for bar in bars(chart)}
    assert drawn == {
        (device, RESOURCES[key]): share
        for device, used in plan["utilisation"].items()
        for key, share in used.items()
        if key != "connections"
    }


def test_what_no_device_counts_has_no_bar():
    plan, connections = make_plan(3, ram_bits=None)
    assert "RAM bits" not in page_of(plan, connections)
    assert "ram_bits" not in kind_shares(plan)
    assert "RAM blocks" in page_of(plan, connections)


def test_kinds_share_what_the_cluster_has():
    plan, _ = make_plan(4, 100)
    shares = kind_shares(plan)
    assert list(shares) == ["dsp", "luts", "ram_bits", "ram_blocks", "dram_read", "dram_write"]
    for key, kinds in shares.items():
        mean = sum(used[key] for used in plan["utilisation"].values()) / 4
        assert sum(kinds.values()) == pytest.approx(mean)
    convs = [layer["dsp"] for layer in plan["layers"] if layer["kind"] == "conv"]
    assert shares["dsp"]["conv"] == pytest.approx(sum(convs) / 6000)


def test_parts_are_as_long_as_their_share_and_stacked():
    plan, _ = make_plan(4, 100)
    figure = kind_chart(plan).figure()
    assert figure["layout"]["barmode"] == "stack"
    for key, kinds in kind_shares(plan).items():
        row = rows(figure).index(RESOURCES[key])
        parts = {bar.series: bar.size for bar in bars(figure) if bar.place == row}
        assert parts == {kind: share for kind, share in kinds.items() if share}


def test_of_several_kinds_of_ram_block_the_scarcest_counts():
    ram = [{"kind": "bram18", "from_bits": 0, "shapes": [], "blocks": 3400}]
    ram.append({"kind": "uram", "from_bits": 9, "shapes": [], "blocks": 10})
    plan, _ = make_plan(2, 30, ram=ram)
    for layer in plan["layers"]:
        layer["ram_blocks_by_kind"] = {"bram18": 1, "uram": layer["kind"] == "conv"}
    convs = sum(layer["kind"] == "conv" for layer in plan["layers"])
    assert kind_shares(plan)["ram_blocks"] == {"input": 0, "conv": pytest.approx(convs / 20)} | dict.fromkeys(
        ("online_norm", "bias", "relu6", "soft_cross_loss", "output"), 0
    )


def test_the_sweep_has_a_line_per_factor_in_order():
    assert [(mp, [p["devices"] for p in line]) for mp, line in by_factor(make_sweep()).items()] == [
        (1, [3, 6, 9]),
        (2, [3, 6, 9]),
        (4, [3, 6, 9]),
    ]
    assert names(sweep_chart(make_sweep()).figure()) == ["no MP", "MP2", "MP4"]


def test_points_and_whiskers_of_the_sweep_are_those_of_the_plans():
    figure = sweep_chart(make_sweep()).figure()
    for series in figure["data"]:
        factor = {"no MP": 1, "MP2": 2, "MP4": 4}[series["name"]]
        line = by_factor(make_sweep())[factor]
        assert points(figure, series["name"]) == [(p["devices"], p["throughput"]) for p in line]
        ends = [y + above for y, above in zip(series["y"], series["error_y"]["array"], strict=True)]
        assert ends == pytest.approx([p["bound"] for p in line])
        assert series["hovertext"][0].startswith(f"{series['name']}, 3 devices: ")


def test_the_curve_of_a_sweep_comes_first():
    page = page_of(*make_plan(), make_sweep())
    assert re.findall("<h2>([^<]*)", page)[:2] == ["Throughput over the number of devices", "Mapping"]


def test_a_plan_alone_has_no_chart_over_devices():
    assert "Throughput over" not in page_of(*make_plan())
    none = [{"devices": 2, "mp": 1, "throughput": 0, "bound": 0, "gap": 0}]
    assert "Throughput over" not in page_of(*make_plan(), none)


def test_tables_have_every_layer_and_connection_in_order():
    plan, connections = make_plan(4, 60)
    page = page_of(plan, connections)
    rows = re.findall(r'<tr><th scope="row">([^<]*)</th>', page)
    names = [layer["name"] for layer in plan["layers"]]
    start = rows.index(names[0])
    assert rows[start : start + 60] == names
    count = len(connections["connections"])
    assert rows[start + 60 : start + 60 + count] == [str(n) for n in range(1, count + 1)]
    for connection in connections["connections"]:
        assert f"<td>{connection['from']['layer']} on {connection['from']['device']}</td>" in page
    assert "tries" in rows
    assert "12.25" in page


def test_the_head_says_what_was_reached():
    page = page_of(*make_plan(4))
    head = page[page.index("<h1>") : page.index("<h2>")]
    for text in (
        "example on arria10x4",
        "proven gap 3.14 %",
        "3,000",
        "3,094",
        "2,871",
        "of 4",
        "fpga3",
        "DRAM read",
    ):
        assert text in head
    assert "optimal" in page_of(*make_plan(4, status="optimal"))
    plan, connections = make_plan(4)
    plan["limit"] = {"device": "fpga1", "resource": "cycles", "layer": "conv17"}
    assert "cycles of conv17" in page_of(plan, connections)


def test_one_device_has_no_switch_and_no_connections():
    page = page_of(*make_plan(1, 30))
    assert 'class="switch"' not in page
    assert "<h2>Connections" not in page


def test_devices_without_layers_are_shown_as_unused():
    plan, connections = make_plan(6, 60, [0, 1, 2, 0])
    page = page_of(plan, connections)
    assert page.count(">unused<") == 3
    assert "of 6" in page


def test_names_are_escaped():
    plan, connections = make_plan(2, 30)
    plan["model"] = plan["cluster"]["name"] = "<model> & more"
    old, new = plan["layers"][5]["name"], '<layer> & "more"'
    plan["layers"][5]["name"] = new
    for edge in plan["edges"]:
        edge |= {end: new for end in ("from", "to") if edge[end] == old}
    page = page_of(plan, connections)
    assert "<model>" not in page
    assert "<layer>" not in page
    assert escape(new) in page


def test_the_page_refers_to_nothing_outside():
    assert outside(page_of(*make_plan(6, 100), make_sweep())) == []


def test_every_class_of_the_drawings_has_a_rule():
    page = page_of(*make_plan(6, 100), make_sweep())
    rules = page[: page.index("</style>")]
    used = {name for names in re.findall(r'class="([^"]*)"', page) for name in names.split()}
    used -= {"tick", "lane", "chart", "drawing"}
    assert {name for name in used if f".{name}" not in rules} == set()


@pytest.mark.parametrize(
    ("value", "text"), [(999.96, "1,000"), (12.3456, "12.35"), (381, "381.0"), (0.25, "0.2500")]
)
def test_figures_have_four_digits(value, text):
    assert figure(value) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0.00 %"), (1e-9, "< 0.01 %"), (0.0314, "3.14 %")])
def test_a_gap_is_never_said_to_be_nothing_when_it_is(share, text):
    assert percent(share) == text
