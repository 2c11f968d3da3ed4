"""Charts of a CNN's training: cycles of each layer, and times of frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.report.chart import Axis, Bar, Chart, Point
from fanin.report.palette import STYLES

#: States of a way, and the style of each.
SHARES = {"busy": "compute", "starved": "waiting", "blocked": "blocked"}
WAYS = ("forward", "backward")
SPANS = (*WAYS, "update")  #: spans of a batch
#: Traffic of a device, with the rate that bounds it and its style.
USES = {
    "read": ("dram_gbps", "dram_read"),
    "written": ("dram_gbps", "dram_write"),
    "sent": ("link_gbps", "network"),
    "received": ("link_gbps", "network_in"),
}
_ROW = 30.0  # height of a row of three or four bars, px
_SPAN = 0.26  # height of each of three spans in a row, as a share of the row

Way = Mapping[str, Any]


def cycles_chart(layers: Sequence[Mapping[str, Any]], ways: Sequence[Way]) -> Chart:
    """Return bars by layer: planned cycles of a frame, and measured cycles of each way."""
    names = [layer["name"] for layer in layers]
    chart = Chart("Cycles of a frame by layer", Axis("cycles of a frame", ",", ","), rows=names, row=_ROW)
    planned = [
        Bar(row, layer["cycles"], f"{layer['name']}: {layer['cycles']:,} cycles planned")
        for row, layer in enumerate(layers)
    ]
    chart.bars("planned", planned, STYLES["planned"])
    for direction in WAYS:
        measured = [
            Bar(
                names.index(way["layer"]),
                way["busy"],
                f"{way['layer']} {direction}: {way['busy']:,.1f} cycles measured",
            )
            for way in ways
            if way["way"] == direction and not way["port"] and way["layer"] in names
        ]
        if measured:
            chart.bars(f"busy, {direction}", measured, STYLES[direction])
    return chart


def shares_chart(ways: Sequence[Way]) -> Chart:
    """Return bars by way of a layer: busy, starved and blocked shares of the job's time."""
    names = [f"{way['layer']} {way['way']}" + (f" {way['port']}" if way["port"] else "") for way in ways]
    chart = Chart(
        "Busy, starved and blocked by layer",
        Axis.share("of the job's time", high=1.0),
        rows=names,
        row=18,
        bars="stack",
    )
    for kind, like in SHARES.items():
        shares = [way[f"{kind}_share"] for way in ways]
        bars = [
            Bar(row, share, f"{name}: {kind} {100 * share:.1f} %")
            for row, (name, share) in enumerate(zip(names, shares, strict=True))
        ]
        chart.bars(kind, bars, STYLES[like])
    return chart


def use_chart(hardware: Mapping[str, Any]) -> Chart:
    """Return bars by device: used shares of the memory's and the link's rate, each way."""
    devices = hardware["devices"]
    chart = Chart(
        "Memory and network by device",
        Axis.share("of the rate each way", high=1.0),
        rows=[device["name"] for device in devices],
        row=_ROW,
    )
    for name, (bound, like) in USES.items():
        rate = hardware[bound]
        if not rate:
            continue
        used = [device[f"{name}_gbps"] for device in devices]
        bars = [
            Bar(row, gbps / rate, f"{device['name']}: {name} {gbps:.2f} of {rate:g} Gb/s")
            for row, (device, gbps) in enumerate(zip(devices, used, strict=True))
        ]
        chart.bars(name, bars, STYLES[like])
    return chart


def batch_chart(timeline: Mapping[str, Any]) -> Chart:
    """Return bars by layer: from a batch's first frame to its last, each way, and the update."""
    layers = timeline["layers"]
    chart = Chart(
        "One batch by layer",
        Axis("cycles since the first layer gave the batch's first frame", ",", ","),
        rows=[row["layer"] for row in layers],
        row=_ROW,
        bars="overlay",
    )
    for place, name in enumerate(SPANS, start=-1):
        bars = []
        for number, row in enumerate(layers):
            if row[name]:
                begin, end = row[name]
                hint = f"{row['layer']} {name}: cycle {begin:,} to {end:,}"
                bars.append(Bar(number + place * _SPAN, end - begin, hint, begin))
        chart.bars(name, bars, STYLES[name], width=_SPAN)
    return chart


def results_chart(written: Sequence[int], batch: int) -> Chart:
    """Return a chart of when the first batches' results were in memory: steps, and gaps between batches."""
    points: list[Point] = []
    hints: list[str] = []
    for frame, at in enumerate(written):
        if frame and frame % batch == 0:
            points.append((at, None))
            hints.append("")
        points.append((at, frame + 1))
        hints.append(f"frame {frame % batch} of batch {frame // batch}: cycle {at:,}")
    chart = Chart(
        "Frames over cycles",
        Axis("cycles since the first result", ",", ","),
        Axis.count("frames", len(written)),
    )
    chart.line("frames", points, STYLES["run"], hints=hints)
    return chart
