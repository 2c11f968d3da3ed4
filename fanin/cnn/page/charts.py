"""Charts of a CNN's training on hardware: cycles of each layer, traffic, and times of frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.report.chart import Axis, Bar, Chart, Point
from fanin.report.palette import STYLES

#: States of a stream, with the style of each.
SHARES = {"busy": "compute", "starved": "waiting", "blocked": "blocked"}
DIRECTIONS = ("forward", "backward")
SPANS = (*DIRECTIONS, "update")  #: spans of a batch
#: Traffic of a device, with the key of the rate that limits it, and its style.
USES = {
    "read": ("dram_gbps", "dram_read"),
    "written": ("dram_gbps", "dram_write"),
    "sent": ("link_gbps", "network"),
    "received": ("link_gbps", "network_in"),
}
_ROW_HEIGHT = 30.0  # height of a row of three or four bars, px
_SPAN_HEIGHT = 0.26  # height of each of three spans in a row, as a share of the row

StreamMeasures = Mapping[str, Any]


def cycles_chart(layers: Sequence[Mapping[str, Any]], streams: Sequence[StreamMeasures]) -> Chart:
    """Return bars by layer: planned cycles of a frame, and measured cycles forward and backward.

    ``layers``: ``layers`` of build.json.
    ``streams``: ``ways`` of run.json's ``hardware``.
    """
    names = [layer["name"] for layer in layers]
    chart = Chart(
        "Cycles of a frame by layer", Axis("cycles of a frame", ",", ","), rows=names, row=_ROW_HEIGHT
    )
    planned = [
        Bar(row, layer["cycles"], f"{layer['name']}: {layer['cycles']:,} cycles planned")
        for row, layer in enumerate(layers)
    ]
    chart.bars("planned", planned, STYLES["planned"])
    for direction in DIRECTIONS:
        measured = [
            Bar(
                names.index(stream["layer"]),
                stream["busy"],
                f"{stream['layer']} {direction}: {stream['busy']:,.1f} cycles measured",
            )
            for stream in streams
            if stream["way"] == direction and not stream["port"] and stream["layer"] in names
        ]
        if measured:
            chart.bars(f"busy, {direction}", measured, STYLES[direction])
    return chart


def shares_chart(streams: Sequence[StreamMeasures]) -> Chart:
    """Return bars by stream of a layer: busy, starved and blocked shares of the job's time."""
    names = [
        f"{stream['layer']} {stream['way']}" + (f" {stream['port']}" if stream["port"] else "")
        for stream in streams
    ]
    chart = Chart(
        "Busy, starved and blocked by layer",
        Axis.share("of the job's time", high=1.0),
        rows=names,
        row=18,
        bars="stack",
    )
    for kind, style in SHARES.items():
        shares = [stream[f"{kind}_share"] for stream in streams]
        bars = [
            Bar(row, share, f"{name}: {kind} {100 * share:.1f} %")
            for row, (name, share) in enumerate(zip(names, shares, strict=True))
        ]
        chart.bars(kind, bars, STYLES[style])
    return chart


def use_chart(hardware: Mapping[str, Any]) -> Chart:
    """Return bars by device: used shares of the memory's and the link's rate, in each direction."""
    devices = hardware["devices"]
    chart = Chart(
        "Memory and network by device",
        Axis.share("of the rate each way", high=1.0),
        rows=[device["name"] for device in devices],
        row=_ROW_HEIGHT,
    )
    for name, (limit, style) in USES.items():
        rate = hardware[limit]
        if not rate:
            continue
        used = [device[f"{name}_gbps"] for device in devices]
        bars = [
            Bar(row, gbps / rate, f"{device['name']}: {name} {gbps:.2f} of {rate:g} Gb/s")
            for row, (device, gbps) in enumerate(zip(devices, used, strict=True))
        ]
        chart.bars(name, bars, STYLES[style])
    return chart


def batch_chart(timeline: Mapping[str, Any]) -> Chart:
    """Return bars by layer: from a batch's first frame to its last, forward and backward, and the update."""
    layers = timeline["layers"]
    chart = Chart(
        "One batch by layer",
        Axis("cycles since the first layer gave the batch's first frame", ",", ","),
        rows=[row["layer"] for row in layers],
        row=_ROW_HEIGHT,
        bars="overlay",
    )
    for offset, name in enumerate(SPANS, start=-1):
        bars = []
        for number, row in enumerate(layers):
            if row[name]:
                begin, end = row[name]
                hint = f"{row['layer']} {name}: cycle {begin:,} to {end:,}"
                bars.append(Bar(number + offset * _SPAN_HEIGHT, end - begin, hint, begin))
        chart.bars(name, bars, STYLES[name], width=_SPAN_HEIGHT)
    return chart


def results_chart(result_cycles: Sequence[int], batch: int) -> Chart:
    """Return a line of frames over the cycles in which their results were in memory, with a gap per batch.

    ``batch``: frames of a batch.
    """
    points: list[Point] = []
    hints: list[str] = []
    for frame, cycle in enumerate(result_cycles):
        if frame and frame % batch == 0:
            points.append((cycle, None))
            hints.append("")
        points.append((cycle, frame + 1))
        hints.append(f"frame {frame % batch} of batch {frame // batch}: cycle {cycle:,}")
    chart = Chart(
        "Frames over cycles",
        Axis("cycles since the first result", ",", ","),
        Axis.count("frames", len(result_cycles)),
    )
    chart.line("frames", points, STYLES["run"], hints=hints)
    return chart
