"""The drawing of a plan: all of it is there, nothing overlaps, and the ways of wires can be told apart."""

from itertools import combinations, pairwise

import pytest

from fanin.cnn.plan.page.drawings import hop_colour, mapping_chart
from fanin.cnn.plan.page.layout import Layout, in_order, lanes, segments
from tests.fanin.report.plans import KINDS, elements, make_plan, numbers, titles

CASES = [(1, 40, None), (2, 30, None), (3, 60, None), (4, 200, [0, 1, 2, 0, 3, 1, 2, 3, 0])]
CASES += [
    (6, 200, [0, 1, 2, 3, 1, 4, 5, 3, 2, 0]),
    (8, 200, [0, 2, 7, 2, 6, 3, 0, 7, 6, 0]),
    (9, 200, None),
    (15, 200, [*range(15), 3, 9, 1, 0]),
    (64, 400, None),
]
cases = pytest.mark.parametrize(("count", "size", "order"), CASES)


@cases
def test_every_device_layer_and_connection_is_drawn_once(count, size, order):
    plan, connections = make_plan(count, size, order)
    svg = mapping_chart(plan, connections, {}, "fpga0")
    cards = [e.text for e in elements(svg, "text", "lane")]
    assert (cards[0], cards.pop()) == ("fpga0", "host")
    assert sorted(cards) == sorted(f"fpga{n}" for n in range(count))
    blocks = titles(elements(svg, "rect", "block"))
    assert sorted(title.split(" ")[0] for title in blocks) == sorted(layer["name"] for layer in plan["layers"])
    wires = [title.split(": ")[1] for title in titles(elements(svg, "polyline", "head"))]
    ends = [
        [f"{c[end]['layer']} on {c[end]['device']}" for end in ("from", "to")]
        for c in connections["connections"]
    ]
    assert sorted(wires) == sorted(" → ".join(pair) for pair in ends)


@cases
def test_wires_lead_from_card_to_card_and_never_lie_on_each_other(count, size, order):
    layout = Layout(*make_plan(count, size, order))
    legs = []
    for wire in layout.wires:
        (x, y), (tip, end) = wire.path()[0], wire.path()[-1]
        source, target = wire.ends
        assert source.x < x < source.x + source.width
        assert target.x < tip < target.x + target.width
        assert (y, end) == (source.edge, target.edge + 9 * target.down)
        legs += [(wire, *sorted(leg)) for leg in pairwise(wire.path())]
    for (one, a, b), (other, c, d) in combinations(legs, 2):
        for along, across in ((0, 1), (1, 0)):
            straight = a[across] == b[across] and c[across] == d[across]
            if one is not other and straight and abs(a[across] - c[across]) < 5:
                assert min(b[along], d[along]) - max(a[along], c[along]) <= 0, (one.title, other.title)


@cases
def test_nothing_overlaps_and_all_is_inside(count, size, order):
    plan, connections = make_plan(count, size, order)
    layout = Layout(plan, connections)
    boxes = [(card.x, card.y, card.x + card.width, card.y + card.height) for card in layout.cards.values()]
    boxes += [(layout.cards_left, top, 960, top + height) for top, height in layout.bars]
    for a, b, c, d in boxes:
        assert 0 <= a < c <= 960
        assert 0 <= b < d <= layout.height
    for one, other in combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    svg = mapping_chart(plan, connections, {}, "fpga0")
    frames = [numbers(e, "x", "y", "width", "height") for e in elements(svg, "rect", "segment")]
    for block in elements(svg, "rect", "block"):
        x, y, width, height = numbers(block, "x", "y", "width", "height")
        inside = [
            f for f in frames if f[0] <= x and x + width <= f[0] + f[2] and f[1] <= y <= f[1] + f[3] - height
        ]
        assert len(inside) == 1


def test_segments_are_what_the_network_leaves_together():
    plan, _ = make_plan(4, 60, [0, 1, 0, 2, 3, 0])
    found = segments(plan)
    assert sorted(layer["name"] for s in found for layer in s.layers) == sorted(
        x["name"] for x in plan["layers"]
    )
    order = ["fpga0", "fpga1", "fpga0", "fpga2", "fpga3", "fpga0"]
    assert [(s.device, s.hop) for s in found] == list(zip(order, range(6), strict=True))
    assert found[0].title == "input0 … conv9 (10 layers)"
    assert found[-1].layers[-1]["name"] == "output59"


def test_a_run_begins_with_what_is_not_pointwise():
    plan, _ = make_plan(1, 30)
    runs = segments(plan)[0].runs(4)
    assert [layer["kind"] for layer in runs[1]] == list(KINDS)
    assert sum(map(len, runs)) == 30
    assert max(len(run) for run in segments(plan)[0].runs(2)) == 2


def test_lanes_hold_spans_that_do_not_meet():
    spans = [(0, 100), (10, 40), (60, 90), (200, 300), (30, 70)]
    chosen = lanes(spans)
    for (one, a), (other, b) in combinations(zip(spans, chosen, strict=True), 2):
        assert a != b or one[1] < other[0] or other[1] < one[0]
    assert max(chosen) == 2


def test_wider_wires_carry_more():
    plan, connections = make_plan(6, 100)
    wires = Layout(plan, connections).wires
    ordered = sorted(wires, key=lambda wire: wire.connection["bits_per_second"])
    widths = [wire.width for wire in ordered]
    assert widths == sorted(widths)
    assert (min(widths) >= 1, widths[-1]) == (True, 7)


def test_unused_devices_stand_in_order_in_a_row_that_runs_back():
    cards = Layout(*make_plan(8, 60, [0, 1, 2, 3, 4, 0])).cards  # fpga4 is the first of the second row
    assert [name for name in sorted(cards, key=lambda name: cards[name].x) if cards[name].row == 1] == [
        "fpga5", "fpga6", "fpga7", "fpga4"
    ]  # fmt: skip


def test_wires_have_the_colour_of_their_hop():
    plan, connections = make_plan(4, 60, [0, 1, 2, 3, 0])
    svg = mapping_chart(plan, connections, {}, "fpga0")
    for connection, head in zip(in_order(plan, connections), heads(svg), strict=True):
        assert head.get("class") == f"head {hop_colour(connection['hops'])}"
    assert len({head.get("class") for head in heads(svg)}) == 4


def heads(svg):
    """The heads of wires, by the numbers of the wires."""
    return sorted(elements(svg, "polyline", "head"), key=lambda head: int(titles([head])[0].split(":")[0]))


def test_the_limiting_device_is_marked():
    plan, connections = make_plan(4)
    svg = mapping_chart(plan, connections, {"fpga2": "DRAM read 97 %"}, "fpga2")
    (card,), there = elements(svg, "rect", "limiting"), Layout(plan, connections).cards["fpga2"]
    assert numbers(card, "x", "y") == pytest.approx([there.x, there.y], abs=0.01)
    assert "DRAM read 97 %" in svg
