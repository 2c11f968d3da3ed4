"""The page of a CNN's training: its charts are to scale, and sentences name what limits."""

import re

import pytest

from fanin.cnn.page.charts import batch_chart, cycles_chart, results_chart, shares_chart, use_chart
from fanin.cnn.page.page import NAMES, cnn_page, exact_line, limit_lines, machines_in
from fanin.cnn.run.options import FRAMES, ClusterOptions
from fanin.runs.option_tables import option_tables
from tests.fanin.report.drawn import bars, figures, outside, own, points, rows

LAYERS = [
    {"name": "image", "kind": "input", "cycles": 64},
    {"name": "conv1", "kind": "conv", "cycles": 400},
    {"name": "norm1", "kind": "online_norm", "cycles": 800},
    {"name": "loss1", "kind": "soft_cross_loss", "cycles": 10},
]


def way(layer, direction, busy, shares=(0.5, 0.3, 0.2)):
    names = [f"{kind}_share" for kind in ("busy", "starved", "blocked")]
    return {"layer": layer, "way": direction, "port": 0, "busy": busy, **dict(zip(names, shares, strict=True))}


WAYS = [
    way("conv1", "forward", 410.5),
    way("norm1", "forward", 640.0, (0.75, 0.25, 0)),
    way("norm1", "backward", 810.0),
]
HARDWARE = {
    "frames": 100,
    "cycles": 90_000,
    "cycles_per_frame": 820.0,
    "frames_per_second": 121_951.2,
    "of_planned": 0.9756,
    "frames_per_second_with_updates": 111_111.1,
    "drain_and_update_cycles": 8_100,
    "predicted": {"frames_per_second": 122_222.2, "frames_per_second_with_updates": 110_110.1},
    "devices": [
        {
            "name": "fpga0",
            "read_bytes_per_frame": 2048.0,
            "written_bytes_per_frame": 1024.0,
            "read_gbps": 12.5,
            "written_gbps": 6.25,
            "sent_gbps": 10.0,
            "received_gbps": 4.0,
            "read_share": 0.25,
            "write_share": 0.125,
            "dram_gbps": 60.0,
            "network_gbps": 40.0,
        },
    ],
    "dram_gbps": 50.0,
    "link_gbps": 40.0,
    "ways": [*WAYS, way("loss1", "backward", 900.0, (1, 0, 0))],
    "results": [0, 800, 1600, 4000, 4800, 5600],
    "timeline": {
        "frames": 32,
        "start": 40_000,
        "layers": [
            {"layer": "conv1", "forward": [0, 24_000], "backward": None, "update": [28_000, 30_100]},
            {"layer": "norm1", "forward": [200, 24_300], "backward": [3_000, 28_000], "update": None},
            {"layer": "loss1", "forward": [900, 25_000], "backward": [950, 25_050], "update": None},
        ],
    },
    "fifos": [{"name": "conv1 to add1", "kind": "forward", "unit": "transfers", "fill": 1_045, "size": 1_200}],
}


def end(device, sent, retransmitted, received, failure=None):
    refused = dict.fromkeys(("bad_fcs", "out_of_order", "duplicates"), retransmitted)
    counts = {"sent": sent, "retransmitted": retransmitted, "received": received, **refused}
    return {"device": device, **counts, "failure": failure}


CONNECTIONS = [
    {
        "from": "conv1",
        "to": "norm1",
        "number": 0,
        "ends": [end("fpga0", 1800, 3, 1690), end("fpga1", 1700, 0, 1800, "TIMEOUT")],
    },
]
OPTIONS = ClusterOptions(drop=0.02, corrupt=0.001, network_seed=7, cut="fpga1@3")
CONDITIONS = {"drop": 0.02, "duplicate": 0.0, "reorder": 0.0, "corrupt": 0.001, "seed": 7, "cut": "fpga1@3"}


def run(on="rtl", hardware=HARDWARE, **changes):
    """A run.json."""
    others = {"rtl": ("rtl", "golden", "float64"), "golden": ("golden",)}[on]
    epochs = [
        {
            "epoch": n,
            "lr": 0.1 / n,
            **{m: {"loss": 1 / n, "train_accuracy": 0.5, "accuracy": 0.4 + n / 10} for m in others},
        }
        for n in (1, 2, 3)
    ]
    return {
        "error": None,
        "bit_exact": on == "rtl" or None,
        "on": on,
        "frames": 300,
        "frames_compared": 300 * (on == "rtl"),
        "checkpoints": ["a", "b", "c", "d"],
        "epochs": epochs,
        "hardware": hardware if on == "rtl" else None,
        "connections": CONNECTIONS if on == "rtl" else [],
        "conditions": CONDITIONS,
        "data": {"name": "digits", "sha256": "ab" * 32, "train": 100, "test": 20},
        "training": {
            "epochs": 3, "batch": 3, "rate": 0.1, "schedule": "cosine", "momentum": 0.9, "seed": 0,
            "checkpoint": None,
        },
        "build": {
            "model": "small", "devices": ["fpga0", "fpga1"], "clock_hz": 100_000_000, "throughput": 125_000.0,
            "arithmetic": "c", "link": "reliable", "encap": "l2", "network": "cd" * 32, "layers": LAYERS,
        },
        "builds": [{"folder": "build", "from": "a"}],
    } | changes  # fmt: skip


def whole_page(run_file):
    """The page with its options."""
    lacking = () if run_file["connections"] else (FRAMES,)
    return cnn_page(run_file, option_tables(ClusterOptions, OPTIONS.as_json(), lacking))


def page_of(run_file):
    """The page without the charting library's source, in which any word may stand."""
    return own(whole_page(run_file))


def test_planned_and_measured_cycles_are_on_one_scale():
    figure = cycles_chart(LAYERS, WAYS).figure()
    assert rows(figure) == ["image", "conv1", "norm1", "loss1"]
    drawn = {(bar.series, bar.place): bar.size for bar in bars(figure)}
    assert drawn["planned", 2] == 800
    assert drawn["busy, forward", 1] == 410.5
    assert drawn["busy, backward", 2] == 810
    assert (figure["layout"]["barmode"], len(drawn)) == ("group", 4 + 3)


def test_shares_of_a_way_are_stacked_and_fill_its_row():
    figure = shares_chart(WAYS).figure()
    assert rows(figure) == ["conv1 forward", "norm1 forward", "norm1 backward"]
    first = [(bar.series, bar.size, bar.hint) for bar in bars(figure) if bar.place == 0]
    assert first == [
        ("busy", 0.5, "conv1 forward: busy 50.0 %"),
        ("starved", 0.3, "conv1 forward: starved 30.0 %"),
        ("blocked", 0.2, "conv1 forward: blocked 20.0 %"),
    ]
    assert figure["layout"]["barmode"] == "stack"


def test_results_have_a_line_for_each_batch():
    figure = results_chart(HARDWARE["results"], 3).figure()
    line = points(figure, "frames")
    assert line == [(0, 1), (800, 2), (1600, 3), (4000, None), (4000, 4), (4800, 5), (5600, 6)]
    assert figure["data"][0]["hovertext"][line.index((4800, 5))] == "frame 1 of batch 1: cycle 4,800"


def test_a_batch_is_drawn_to_scale_layer_by_layer():
    figure = batch_chart(HARDWARE["timeline"]).figure()
    drawn = {(bar.series, round(bar.place)): bar for bar in bars(figure)}
    assert {key: (bar.begin, bar.begin + bar.size) for key, bar in drawn.items()} == {
        (name, row): tuple(layer[name])
        for row, layer in enumerate(HARDWARE["timeline"]["layers"])
        for name in ("forward", "backward", "update")
        if layer[name]
    }
    lowest = drawn["update", 0].place + figure["data"][2]["width"] / 2
    assert lowest < drawn["forward", 1].place - figure["data"][0]["width"] / 2  # above the next row


def test_a_batch_is_told_in_a_sentence():
    assert (
        "Batch of 32 frames: 3,000 cycles until the first was back, 4,000 from when the last one was in until "
        "it was back, 2,100 more for updates; 30,100 cycles in all." in page_of(run())
    )


def test_the_layer_that_limits_is_named():
    planned, measured = limit_lines(run())
    assert planned == "norm1 limits by plan: 800 cycles a frame, 125,000 frames a second at 100 MHz"
    assert measured == (
        "Measured, a frame had gone back every 820.0 cycles, 97.6 % of the planned rate; "
        "with drains and updates, norm1 forward was starved 25 % of the time and blocked 0 %"
    )
    two = [layer | {"cycles": min(layer["cycles"], 400)} for layer in LAYERS]
    (planned,) = limit_lines(run("golden") | {"build": run()["build"] | {"layers": two}})
    assert planned.startswith("conv1 and norm1 limit by plan: 400 cycles")


def test_memories_and_links_are_drawn_beside_their_rates():
    drawn = {bar.series: (bar.size, bar.hint) for bar in bars(use_chart(HARDWARE).figure())}
    names = {"read": (12.5, 50), "written": (6.25, 50), "sent": (10, 40), "received": (4, 40)}
    assert drawn == {
        name: (used / rate, f"fpga0: {name} {used:.2f} of {rate} Gb/s") for name, (used, rate) in names.items()
    }
    alone = use_chart(HARDWARE | {"link_gbps": None}).figure()
    assert [bar.series for bar in bars(alone)] == ["read", "written"]
    page = page_of(run())
    assert "Memories move 50 Gb/s each way, links 40 Gb/s" in page
    assert "as fast as the slowest" not in page
    other = HARDWARE["devices"][0] | {"name": "fpga1", "dram_gbps": 50.0}
    page = page_of(run(hardware=HARDWARE | {"devices": [*HARDWARE["devices"], other]}))
    assert "devices differ in the plan, and all are simulated as fast as the slowest" in page


def test_connections_and_what_happened_to_them_are_named():
    page = page_of(run())
    row = '<th scope="row">conv1 to norm1, sent by {}</th><td>{}</td>'
    assert row.format("fpga0", "1,800 frames, 3 again; 1,690 received, 9 refused") in page
    assert row.format("fpga1", "1,700 frames, 0 again; FAILED: TIMEOUT") in page
    rows = dict(re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>', page))
    found = [rows[name] for name in ("link", "frames", "drop", "corrupt", "network-seed", "cut")]
    assert found == ["reliable", "L2", "0.02", "0.001", "7", "fpga1@3"]
    assert "network-seed" not in page_of(run("golden"))


def test_what_was_compared_is_said():
    assert exact_line(run()) == "yes: the outputs of all 300 frames, and the state 3 times"
    assert exact_line(run("golden")) == "this is the golden model"
    assert exact_line(run(error="frame 3 differs", bit_exact=False)) == "NO: frame 3 differs"
    assert machines_in(run()) == ["rtl", "golden", "float64"]


@pytest.mark.parametrize("on", ["rtl", "golden"])
def test_a_page_is_whole_and_refers_to_nothing_else(on):
    page = page_of(run(on))
    assert page.startswith("<!doctype html>")
    assert outside(page) == []
    assert ("What the layers did" in page) == (on == "rtl")
    fill = '<th scope="row">conv1 to add1</th><td>1,045 / 1,200 transfers</td>'
    assert (fill in page) == (on == "rtl")
    assert points(figures(page)["loss over epoch"], NAMES[on]) == [(n, 1 / n) for n in (1, 2, 3)]


def test_a_run_that_failed_says_why_and_shows_what_there_is():
    page = page_of(run(error="conv1: first infinity or NaN", hardware=None, bit_exact=False))
    assert '<p class="verdict bad">conv1: first infinity or NaN</p>' in page


def test_a_loss_that_is_no_number_is_in_no_chart():
    record = run("golden")
    record["epochs"][1]["golden"]["loss"] = None
    page = page_of(record)
    assert "<td>–</td>" in page
    assert points(figures(page)["loss over epoch"], "in the golden model") == [(1, 1), (3, 1 / 3)]


def test_builds_are_told_where_there_are_several():
    builds = [{"folder": "build", "from": "a"}, {"folder": "builds/2", "from": "b"}]
    row = '<th scope="row">builds/2</th><td>from b</td>'
    assert row in page_of(run(builds=builds))
    assert "<td>from" not in page_of(run())


def test_a_batch_of_two_has_no_steady_rate_that_could_be_predicted():
    short = HARDWARE | {"predicted": HARDWARE["predicted"] | {"frames_per_second": None}}
    page = page_of(run() | {"hardware": short})
    assert "predicted with updates" in page
    assert ">predicted<" not in page
    assert ">predicted<" in page_of(run())
