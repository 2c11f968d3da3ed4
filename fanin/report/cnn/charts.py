"""The charts of a CNN's training: what each layer takes of a frame's time, and how frames follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.report.plan.drawings import kind_class
from fanin.report.svg import Axis, Canvas

WIDTH, LEFT, RIGHT = 960.0, 150.0, 880.0
#: Of a way's time, with the CSS class of its colour.
SHARES = {"busy": "part4", "starved": "part5", "blocked": "part1"}
WAYS = {"forward": "part0", "backward": "part2"}  #: measured, with the CSS class of its colour
SPANS = WAYS | {"update": "part4"}  #: of a batch, likewise
#: What goes to and from a device, with the rate that bounds it and the CSS class of its colour.
USES = {
    "read": ("dram_gbps", "part0"),
    "written": ("dram_gbps", "part2"),
    "sent": ("link_gbps", "part4"),
    "received": ("link_gbps", "part5"),
}
_ROW, _BAR, _LANE = 22.0, 9.0, 6.0

Way = Mapping[str, Any]


def cycles_chart(layers: Sequence[Mapping[str, Any]], ways: Sequence[Way]) -> str:
    """For each layer a bar of its planned cycles of a frame, and one for each way that was measured."""
    top = 10.0
    bottom = top + _ROW * len(layers)
    canvas = Canvas(WIDTH, bottom + 44, "Cycles of a frame, by layer")
    longest = max([*(layer["cycles"] for layer in layers), *(way["busy"] for way in ways)])
    x = Axis(0, longest, LEFT, RIGHT)
    canvas.x_axis(x, bottom, "cycles of a frame", top=top)
    for row, layer in enumerate(layers):
        y, cycles = top + _ROW * row, layer["cycles"]
        own = [way for way in ways if way["layer"] == layer["name"] and not way["port"]]
        canvas.text(LEFT - 8, y + 13, layer["name"], anchor="end")
        height = _BAR if own else 1.6 * _BAR
        title = f"{layer['name']}: {cycles:,} cycles planned"
        canvas.rect(LEFT, y + 2, x(cycles) - LEFT, height, f"bar {kind_class(layer['kind'])}", title)
        for way in own:
            under = y + 2 + _BAR + 4.5 * (way["way"] == "backward")
            title = f"{layer['name']} {way['way']}: {way['busy']:,.1f} cycles measured"
            canvas.rect(LEFT, under, x(way["busy"]) - LEFT, 4, f"bar {WAYS[way['way']]}", title)
        end = max([cycles, *(way["busy"] for way in own)])
        canvas.text(x(end) + 5, y + 13, f"{cycles:,}", "value")
    return canvas.svg()


def shares_chart(ways: Sequence[Way]) -> str:
    """For each way of a layer what it did with the job's time."""
    top, row = 10.0, 17.0
    bottom = top + row * len(ways)
    canvas = Canvas(WIDTH, bottom + 44, "Busy, starved and blocked, by layer")
    x = Axis(0, 100, LEFT + 60, RIGHT)
    canvas.x_axis(x, bottom, "of the job's time, %", top=top)
    for number, way in enumerate(ways):
        y, begin = top + row * number, 0.0
        name = f"{way['layer']} {way['way']}" + (f" {way['port']}" if way["port"] else "")
        canvas.text(LEFT + 52, y + 12, name, anchor="end")
        for kind, css in SHARES.items():
            share = 100 * way[f"{kind}_share"]
            width = x(begin + share) - x(begin)
            canvas.rect(x(begin), y + 2, width, row - 4, f"bar {css}", f"{name}: {kind} {share:.1f} %")
            begin += share
    return canvas.svg()


def use_chart(hardware: Mapping[str, Any]) -> str:
    """For each device how much of its memory's and its link's rate it used, either way."""
    devices, top = hardware["devices"], 10.0
    lanes = [name for name in USES if hardware[USES[name][0]]]
    row = _LANE * len(lanes) + 10
    bottom = top + row * len(devices)
    canvas = Canvas(WIDTH, bottom + 44, "Memory and network, by device")
    x = Axis(0, 100, LEFT, RIGHT)
    canvas.x_axis(x, bottom, "of the rate each way, %", top=top)
    for number, device in enumerate(devices):
        y = top + row * number
        canvas.text(LEFT - 8, y + row / 2 + 4, device["name"], anchor="end")
        for lane, name in enumerate(lanes):
            rate, css = USES[name]
            used = device[f"{name}_gbps"]
            share = 100 * used / hardware[rate]
            title = f"{device['name']}: {name} {used:.2f} of {hardware[rate]:g} Gb/s"
            width = max(x(share) - LEFT, 1.0)
            canvas.rect(LEFT, y + 4 + _LANE * lane, width, _LANE - 1, f"bar {css}", title)
    return canvas.svg()


def batch_chart(timeline: Mapping[str, Any]) -> str:
    """For each layer a bar from a batch's first frame to its last, either way, and one of its update."""
    rows, top = timeline["layers"], 10.0
    bottom = top + _ROW * len(rows)
    canvas = Canvas(WIDTH, bottom + 44, "One batch, by layer")
    ends = [at for row in rows for name in SPANS if row[name] for at in row[name]]
    x = Axis(min([0, *ends]), max(ends), LEFT, RIGHT)
    canvas.x_axis(x, bottom, "cycles since the first layer gave the batch's first frame", top=top)
    for number, row in enumerate(rows):
        y = top + _ROW * number
        canvas.text(LEFT - 8, y + 14, row["layer"], anchor="end")
        for lane, (name, css) in enumerate(SPANS.items()):
            if row[name]:
                begin, end = row[name]
                title = f"{row['layer']} {name}: cycle {begin:,} to {end:,}"
                under = y + 3 + _LANE * lane
                canvas.rect(x(begin), under, max(x(end) - x(begin), 1.5), _LANE - 1, f"bar {css}", title)
    return canvas.svg()


def results_chart(written: Sequence[int], batch: int) -> str:
    """When the results of the first batches' frames were in memory: steps in a batch, a gap where it drains."""
    top, bottom, left = 30.0, 240.0, 64.0
    canvas = Canvas(WIDTH, 286, "Frames over cycles")
    x, y = Axis(0, max(written[-1], 1), left, RIGHT), Axis(0, len(written), bottom, top)
    canvas.y_axis(y, left, "frames", right=RIGHT)
    canvas.x_axis(x, bottom, "cycles since the first result", top=top)
    for first in range(0, len(written), batch):
        part = written[first : first + batch]
        canvas.polyline([(x(at), y(first + n + 1)) for n, at in enumerate(part)], "series line0")
        for n, at in enumerate(part):
            title = f"frame {n} of batch {first // batch}: cycle {at:,}"
            canvas.circle((x(at), y(first + n + 1)), 2.2, "dot dot0", title)
    return canvas.svg()
