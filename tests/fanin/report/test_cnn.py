"""The page of a CNN's training: its charts are to scale, and sentences name what limits."""

import re

import pytest

from fanin.report.cnn.charts import batch_chart, cycles_chart, results_chart, shares_chart, use_chart
from fanin.report.cnn.page import cnn_page, exact_line, limit_lines, machines_in
from tests.fanin.report.plans import elements, numbers, titles

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


def test_planned_and_measured_cycles_are_on_one_scale():
    drawn = {title: bar for bar in elements(cycles_chart(LAYERS, WAYS), "rect") for title in titles([bar])}
    widths = {title: numbers(bar, "width")[0] for title, bar in drawn.items()}
    scale = widths["norm1: 800 cycles planned"] / 800
    assert widths["conv1: 400 cycles planned"] == pytest.approx(400 * scale, abs=0.02)
    assert widths["conv1 forward: 410.5 cycles measured"] == pytest.approx(410.5 * scale, abs=0.02)
    assert widths["norm1 backward: 810.0 cycles measured"] == pytest.approx(810 * scale, abs=0.02)


def test_shares_of_a_way_are_stacked_and_fill_its_row():
    bars = [(titles([bar])[0], numbers(bar, "x", "width")) for bar in elements(shares_chart(WAYS), "rect")]
    first = [values for title, values in bars if title.startswith("conv1 forward")]
    assert [title for title, _ in bars][:3] == [
        "conv1 forward: busy 50.0 %", "conv1 forward: starved 30.0 %", "conv1 forward: blocked 20.0 %"
    ]  # fmt: skip
    (x, width), (behind, _), (_, last) = first
    assert behind == pytest.approx(x + width, abs=0.02)
    assert width == pytest.approx(2.5 * last, abs=0.1)


def test_results_have_a_line_for_each_batch():
    chart = results_chart(HARDWARE["results"], 3)
    assert chart.count("<polyline") == 2
    assert "frame 1 of batch 1: cycle 4,800" in chart


def test_a_batch_is_drawn_to_scale_layer_by_layer():
    drawn = {
        title: bar for bar in elements(batch_chart(HARDWARE["timeline"]), "rect") for title in titles([bar])
    }
    assert len(drawn) == 6
    (forward, back, update) = (
        numbers(drawn[title], "x", "width", "y")
        for title in (
            "conv1 forward: cycle 0 to 24,000",
            "norm1 backward: cycle 3,000 to 28,000",
            "conv1 update: cycle 28,000 to 30,100",
        )
    )
    scale = forward[1] / 24_000
    assert update[:2] == pytest.approx([forward[0] + 28_000 * scale, 2_100 * scale], abs=0.02)
    assert back[:2] == pytest.approx([forward[0] + 3_000 * scale, 25_000 * scale], abs=0.02)
    assert update[2] < back[2]  # a layer's row is above that of the next


def test_a_batch_is_told_in_a_sentence():
    assert (
        "Batch of 32 frames: 3,000 cycles until the first was back, 4,000 from when the last one was in until "
        "it was back, 2,100 more for updates; 30,100 cycles in all." in cnn_page(run())
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
    drawn = {title: bar for bar in elements(use_chart(HARDWARE), "rect") for title in titles([bar])}
    names = {"read": (12.5, 50), "written": (6.25, 50), "sent": (10, 40), "received": (4, 40)}
    bars = {name: drawn[f"fpga0: {name} {used:.2f} of {rate} Gb/s"] for name, (used, rate) in names.items()}
    widths = {name: numbers(bar, "width")[0] for name, bar in bars.items()}
    assert widths["read"] == widths["sent"] == pytest.approx(2 * widths["written"], abs=0.02)
    assert widths["received"] == pytest.approx(widths["sent"] * 0.4, abs=0.02)
    alone = use_chart(HARDWARE | {"link_gbps": None})
    assert "sent" not in alone
    page = cnn_page(run())
    assert "Memories move 50 Gb/s each way, links 40 Gb/s" in page
    assert "as fast as the slowest" not in page
    other = HARDWARE["devices"][0] | {"name": "fpga1", "dram_gbps": 50.0}
    page = cnn_page(run(hardware=HARDWARE | {"devices": [*HARDWARE["devices"], other]}))
    assert "devices differ in the plan, and all are simulated as fast as the slowest" in page


def test_connections_and_what_happened_to_them_are_named():
    page = cnn_page(run())
    row = '<th scope="row">conv1 to norm1, sent by {}</th><td>{}</td>'
    assert row.format("fpga0", "1,800 frames, 3 again; 1,690 received, 9 refused") in page
    assert row.format("fpga1", "1,700 frames, 0 again; FAILED: TIMEOUT") in page
    rows = dict(re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>', page))
    found = [rows[name] for name in ("link", "frames", "drop", "corrupt", "seed of faults", "cut")]
    assert found == ["reliable", "L2", "2 %", "0.1 %", "7", "fpga1@3"]
    assert "reorder" not in rows
    assert "seed of faults" not in cnn_page(run("golden"))


def test_what_was_compared_is_said():
    assert exact_line(run()) == "yes: the outputs of all 300 frames, and the state 3 times"
    assert exact_line(run("golden")) == "this is the golden model"
    assert exact_line(run(error="frame 3 differs", bit_exact=False)) == "NO: frame 3 differs"
    assert machines_in(run()) == ["rtl", "golden", "float64"]


@pytest.mark.parametrize("on", ["rtl", "golden"])
def test_a_page_is_whole_and_refers_to_nothing_else(on):
    page = cnn_page(run(on))
    assert page.startswith("<!doctype html>")
    assert not re.search(r'(?:src|href)="|url\(|https?://(?!www\.w3\.org)', page)
    assert ("What the layers did" in page) == (on == "rtl")
    fill = '<th scope="row">conv1 to add1</th><td>1,045 / 1,200 transfers</td>'
    assert (fill in page) == (on == "rtl")
    assert page.count("<polyline") >= 2


def test_a_run_that_failed_says_why_and_shows_what_there_is():
    page = cnn_page(run(error="conv1: first infinity or NaN", hardware=None, bit_exact=False))
    assert '<p class="verdict bad">conv1: first infinity or NaN</p>' in page


def test_a_loss_that_is_no_number_is_in_no_chart():
    record = run("golden")
    record["epochs"][1]["golden"]["loss"] = None
    page = cnn_page(record)
    assert "<td>–</td>" in page


def test_builds_are_told_where_there_are_several():
    builds = [{"folder": "build", "from": "a"}, {"folder": "builds/2", "from": "b"}]
    row = '<th scope="row">builds/2</th><td>from b</td>'
    assert row in cnn_page(run(builds=builds))
    assert "<td>from" not in cnn_page(run())


def test_a_batch_of_two_has_no_steady_rate_that_could_be_predicted():
    short = HARDWARE | {"predicted": HARDWARE["predicted"] | {"frames_per_second": None}}
    page = cnn_page(run() | {"hardware": short})
    assert "predicted with updates" in page
    assert ">predicted<" not in page
    assert ">predicted<" in cnn_page(run())
