"""The page of a plan: everything of the plan is in it, and its charts are to scale."""

import re
from html import escape
from itertools import pairwise

import pytest

from fanin.report.plan.charts import (
    by_factor,
    figure,
    kind_chart,
    kind_shares,
    percent,
    sweep_chart,
    utilisation_charts,
)
from fanin.report.plan.page import plan_page
from tests.fanin.report.plans import elements, make_plan, make_sweep, numbers, titles


@pytest.mark.parametrize("count", [1, 4, 9, 40])
def test_bars_are_as_high_as_the_utilisation(count):
    plan, _ = make_plan(count, 200)
    charts = utilisation_charts(plan)
    assert len(charts) == -(-count // 16)
    bars = {}
    for chart in charts:
        (line,) = elements(chart, "line", "mark")
        base = max(float(e.get("y1")) for e in elements(chart, "line", "axis"))
        full = base - float(line.get("y1"))
        for bar in elements(chart, "rect", "bar"):
            y, height = numbers(bar, "y", "height")
            assert y + height == pytest.approx(base, abs=0.02)
            key = next(name for name in bar.get("class").split() if name.startswith("use-"))[4:]
            bars[titles([bar])[0].split(",")[0], key] = height / full
    expected = {
        (d, key): u
        for d, used in plan["utilisation"].items()
        for key, u in used.items()
        if key != "connections"
    }
    assert bars == pytest.approx(expected, abs=2e-3)


def test_what_no_device_counts_has_no_bar():
    plan, connections = make_plan(3, ram_bits=None)
    assert "RAM bits" not in plan_page(plan, connections)
    assert "ram_bits" not in kind_shares(plan)
    assert "RAM blocks" in plan_page(plan, connections)


def test_kinds_share_what_the_cluster_has():
    plan, _ = make_plan(4, 100)
    shares = kind_shares(plan)
    assert list(shares) == ["dsp", "luts", "ram_bits", "ram_blocks", "dram_read", "dram_write"]
    for key, kinds in shares.items():
        mean = sum(used[key] for used in plan["utilisation"].values()) / 4
        assert sum(kinds.values()) == pytest.approx(mean)
    convs = [layer["dsp"] for layer in plan["layers"] if layer["kind"] == "conv"]
    assert shares["dsp"]["conv"] == pytest.approx(sum(convs) / 6000)


def test_parts_are_as_long_as_their_share_and_follow_each_other():
    plan, _ = make_plan(4, 100)
    svg = kind_chart(plan)
    full = float(elements(svg, "rect", "free")[0].get("width"))
    for name, key in (("DSPs", "dsp"), ("DRAM read", "dram_read")):
        parts = [e for e in elements(svg, "rect", "bar") if titles([e])[0].startswith(f"{name}, ")]
        widths = [float(e.get("width")) / full for e in parts]
        assert widths == pytest.approx(list(kind_shares(plan)[key].values()), abs=1e-4)
        for before, after in pairwise(parts):
            assert sum(numbers(before, "x", "width")) == pytest.approx(float(after.get("x")), abs=0.02)


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
    page = plan_page(*make_plan(), make_sweep())
    legend = page[page.index("Throughput over the number") :]
    assert re.findall(r"</i>(no MP|MP\d)<", legend) == ["no MP", "MP2", "MP4"]
    assert titles(elements(sweep_chart(make_sweep()), "polyline", "series")) == ["MP4", "MP2", "no MP"]


def test_points_and_whiskers_of_the_sweep_are_to_scale():
    svg = sweep_chart(make_sweep())
    (axis,) = {e.get("y1") for e in elements(svg, "line", "axis") if e.get("y1") == e.get("y2")}
    dots = {titles([e])[0]: float(axis) - float(e.get("cy")) for e in elements(svg, "circle", "dot")}
    ends = {titles([e])[0]: float(axis) - float(e.get("y2")) for e in elements(svg, "line", "whisker")}
    assert len(dots) == 9
    unit = next(height for title, height in dots.items() if title.startswith("no MP, 3 ")) / 120
    for title, height in dots.items():
        throughput, bound = (float(n) for n in re.findall(r"(\d+\.\d+)(?: frames| \(gap)", title))
        assert height == pytest.approx(throughput * unit, abs=0.02)
        assert ends[title] == pytest.approx(bound * unit, abs=0.02)


def test_a_plan_alone_has_no_chart_over_devices():
    assert "Throughput over" not in plan_page(*make_plan())
    none = [{"devices": 2, "mp": 1, "throughput": 0, "bound": 0, "gap": 0}]
    assert "Throughput over" not in plan_page(*make_plan(), none)


def test_tables_have_every_layer_and_connection_in_order():
    plan, connections = make_plan(4, 60)
    page = plan_page(plan, connections)
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
    page = plan_page(*make_plan(4))
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
    assert "optimal" in plan_page(*make_plan(4, status="optimal"))
    plan, connections = make_plan(4)
    plan["limit"] = {"device": "fpga1", "resource": "cycles", "layer": "conv17"}
    assert "cycles of conv17" in plan_page(plan, connections)


def test_one_device_has_no_switch_and_no_connections():
    page = plan_page(*make_plan(1, 30))
    assert 'class="switch"' not in page
    assert "<h2>Connections" not in page


def test_devices_without_layers_are_shown_as_unused():
    plan, connections = make_plan(6, 60, [0, 1, 2, 0])
    page = plan_page(plan, connections)
    assert page.count(">unused<") == 3
    assert "of 6" in page


def test_names_are_escaped():
    plan, connections = make_plan(2, 30)
    plan["model"] = plan["cluster"]["name"] = "<model> & more"
    old, new = plan["layers"][5]["name"], '<layer> & "more"'
    plan["layers"][5]["name"] = new
    for edge in plan["edges"]:
        edge |= {end: new for end in ("from", "to") if edge[end] == old}
    page = plan_page(plan, connections)
    assert "<model>" not in page
    assert "<layer>" not in page
    assert escape(new) in page


def test_the_page_refers_to_nothing_outside():
    page = plan_page(*make_plan(6, 100), make_sweep())
    assert re.findall(r"""(?:src|href|url|@import)\s*[=("']""", page) == []
    assert "http" not in page


def test_every_class_of_the_drawings_has_a_rule():
    page = plan_page(*make_plan(6, 100), make_sweep())
    rules = page[: page.index("</style>")]
    used = {name for names in re.findall(r'class="([^"]*)"', page) for name in names.split()}
    used -= {name for name in used if name.startswith("on-kind-")} | {"tick", "lane"}
    assert {name for name in used if f".{name}" not in rules} == set()


@pytest.mark.parametrize(
    ("value", "text"), [(999.96, "1,000"), (12.3456, "12.35"), (381, "381.0"), (0.25, "0.2500")]
)
def test_figures_have_four_digits(value, text):
    assert figure(value) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0.00 %"), (1e-9, "< 0.01 %"), (0.0314, "3.14 %")])
def test_a_gap_is_never_said_to_be_nothing_when_it_is(share, text):
    assert percent(share) == text
