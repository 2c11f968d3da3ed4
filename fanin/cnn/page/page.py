"""HTML page of a CNN's training: learning curves, limiting layers, and configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.cnn.page import charts
from fanin.report.chart import Axis, Chart
from fanin.report.curves import curves_chart, epoch_axis, loss_axis
from fanin.report.html import Rows, Tables, fill, joined

Metrics = Mapping[str, Any]

NAMES = {"rtl": "in RTL", "golden": "in the golden model", "float64": "in binary64"}
_STYLE_KEYS = {"rtl": "run", "golden": "golden", "float64": "binary64"}  # keys of STYLES
# kinds that wait for the host's data, or for the whole frame
_EXCLUDED_KINDS = ("input", "output", "soft_cross_loss")


def machines_in(metrics: Metrics) -> list[str]:
    """Return the machines that have trained; the first is that of option ``--on``."""
    return [metrics["on"], *(name for name in NAMES if name in metrics["epochs"][-1] and name != metrics["on"])]


def title(metrics: Metrics) -> str:
    """Return the page's title: model, data, machine and batch."""
    build, data, batch = metrics["build"], metrics["data"], metrics["training"]["batch"]
    return f"{build['model']} on {data['name']}, {NAMES[metrics['on']]}: batches of {batch}"


def exact_line(metrics: Metrics) -> str:
    """Return the result of the comparison with the golden model, as text."""
    if metrics["on"] == "golden":
        return "this is the golden model"
    if not metrics["bit_exact"]:
        return f"NO: {metrics['error']}"
    states = len(metrics["checkpoints"]) - 1
    return f"yes: the outputs of all {metrics['frames_compared']:,} frames, and the state {states:,} times"


def limit_lines(metrics: Metrics) -> list[str]:
    """Return a sentence on the layers that limit by plan, and one on the measured rate, if any."""
    layers, clock, hardware = metrics["build"]["layers"], metrics["build"]["clock_hz"], metrics["hardware"]
    cycles = max(layer["cycles"] for layer in layers)
    slowest = [layer["name"] for layer in layers if layer["cycles"] == cycles]
    lines = [
        f"{' and '.join(slowest)} limit{'s' * (len(slowest) == 1)} by plan: {cycles:,} cycles a frame, "
        f"{clock / cycles:,.0f} frames a second at {clock / 1e6:g} MHz"
    ]
    if hardware and hardware["cycles_per_frame"]:
        stream = max(
            (stream for stream in hardware["ways"] if stream["layer"] in slowest),
            key=lambda stream: stream["busy_share"],
        )
        starved, blocked = (f"{100 * stream[share]:.0f} %" for share in ("starved_share", "blocked_share"))
        lines.append(
            f"Measured, a frame had gone back every {hardware['cycles_per_frame']:,.1f} cycles, "
            f"{100 * hardware['of_planned']:.1f} % of the planned rate; with drains and updates, "
            f"{stream['layer']} {stream['way']} was starved {starved} of the time and blocked {blocked}"
        )
    return lines


def cnn_page(metrics: Metrics, options: Tables) -> str:
    """Return the run as a self-contained HTML document.

    - ``metrics``: its run.json.
    - ``options``: its options.
    """
    machines, hardware, batch = machines_in(metrics), metrics["hardware"], metrics["training"]["batch"]
    return fill(
        "cnn.html.j2",
        title=title(metrics),
        fault=metrics["error"],
        verdict="bit-exact" if metrics["on"] == "rtl" else "golden model",
        headline=_headline(metrics, machines),
        exact=exact_line(metrics),
        curves=[
            *_curves(metrics, machines, "accuracy", Axis.share("accuracy of held-out images")),
            *_curves(metrics, machines, "loss", loss_axis()),
        ],
        cycles=charts.cycles_chart(metrics["build"]["layers"], _layer_streams(metrics)),
        limits=limit_lines(metrics),
        shares=charts.shares_chart(_layer_streams(metrics)) if hardware else None,
        timeline=charts.batch_chart(hardware["timeline"]) if hardware else None,
        phases=_phases(hardware["timeline"]) if hardware else "",
        results=charts.results_chart(hardware["results"], batch) if hardware else None,
        memory=_memory(hardware) if hardware else [],
        fifos=_fifos(hardware) if hardware else [],
        use=charts.use_chart(hardware) if hardware else None,
        rates=_rates(hardware) if hardware else "",
        connections=_connections(metrics),
        configuration=joined(options, _facts(metrics)),
        epochs=_epoch_table(metrics, machines),
    )


def _headline(metrics: Metrics, machines: Sequence[str]) -> Rows:
    last, build = metrics["epochs"][-1], metrics["build"]
    rows = [(f"test accuracy {NAMES[name]}", f"{100 * last[name]['accuracy']:.1f} %") for name in machines]
    planned = ("planned", f"{build['throughput']:,.0f} frames/s")
    return [*rows, ("frames trained", f"{metrics['frames']:,}"), planned, *_measured(metrics["hardware"])]


def _measured(hardware: Metrics | None) -> Rows:
    if not hardware or not hardware["frames_per_second"]:
        return []
    return [
        ("measured", f"{hardware['frames_per_second']:,.0f} frames/s"),
        ("with updates", f"{hardware['frames_per_second_with_updates']:,.0f} frames/s"),
        *_predicted(hardware["predicted"]),
    ]


def _predicted(predicted: Metrics) -> Rows:
    """Return the flow model's predicted rates; a batch of up to two frames has no steady rate."""
    steady = predicted["frames_per_second"]
    return [
        *([("predicted", f"{steady:,.0f} frames/s")] if steady else []),
        ("predicted with updates", f"{predicted['frames_per_second_with_updates']:,.0f} frames/s"),
    ]


def _layer_streams(metrics: Metrics) -> list[Mapping[str, Any]]:
    """Return the measures of the streams of all layers except inputs, outputs and the loss."""
    excluded = {layer["name"] for layer in metrics["build"]["layers"] if layer["kind"] in _EXCLUDED_KINDS}
    return [
        stream for stream in (metrics["hardware"] or {"ways": []})["ways"] if stream["layer"] not in excluded
    ]


def _memory(hardware: Metrics) -> Rows:
    """Return the memory traffic of the last job."""
    return [
        (
            f"{direction} by {device['name']}",
            f"{device[f'{direction}_bytes_per_frame']:,.0f} bytes a frame, {100 * share:.1f} %",
        )
        for device in hardware["devices"]
        for direction, share in (("read", device["read_share"]), ("written", device["write_share"]))
    ]


def _rates(hardware: Metrics) -> str:
    """Return sentences on the simulated rates of memories and links."""
    memory, link = hardware["dram_gbps"], hardware["link_gbps"]
    text = f"The last job. Memories move {memory:g} Gb/s each way"
    if link:
        text += f", links {link:g} Gb/s, of which all bytes of frames count, and what Ethernet has around them"
    devices = hardware["devices"]
    if any(len({device[rate] for device in devices}) > 1 for rate in ("dram_gbps", "network_gbps")):
        text += "; devices differ in the plan, and all are simulated as fast as the slowest"
    return text


def _connections(metrics: Metrics) -> Rows:
    """Return the frames sent over each connection in the run."""
    return [
        (f"{connection['from']} to {connection['to']}, sent by {end['device']}", _sent(end))
        for connection in metrics["connections"]
        for end in connection["ends"]
    ]


def _sent(end: Metrics) -> str:
    text = f"{end['sent']:,} frames, {end['retransmitted']:,} again"
    lost = end["bad_fcs"] + end["out_of_order"] + end["duplicates"]
    text += f"; {end['received']:,} received, {lost:,} refused" if lost else ""
    return f"{text}; FAILED: {end['failure']}" if end["failure"] else text


def _phases(timeline: Metrics) -> str:
    """Return a sentence on the cycles in which a batch fills the pipeline, drains, and updates."""
    rows, frames = timeline["layers"], timeline["frames"]
    back = max((row["backward"] for row in rows if row["backward"]), key=lambda span: span[1])
    forward = rows[0]["forward"]
    ends = [back[1], *(row["update"][1] for row in rows if row["update"])]
    return (
        f"Batch of {frames:,} frames: {back[0] - forward[0]:,} cycles until the first was back, "
        f"{back[1] - forward[1]:,} from when the last one was in until it was back, "
        f"{max(ends) - back[1]:,} more for updates; {max(ends) - forward[0]:,} cycles in all"
    )


def _fifos(hardware: Metrics) -> Rows:
    """Return the highest level and the size of each FIFO."""
    return [(f["name"], f"{f['fill']:,} / {f['size']:,} {f['unit']}") for f in hardware["fifos"]]


def _curves(metrics: Metrics, machines: Sequence[str], key: str, y: Axis) -> list[Chart]:
    """Return a chart of a measure over epochs; empty for fewer than two epochs."""
    epochs = metrics["epochs"]
    lines = {
        NAMES[name]: (
            _STYLE_KEYS[name],
            [(epoch["epoch"], epoch[name][key]) for epoch in epochs if epoch[name][key] is not None],
        )
        for name in machines
    }
    if any(len(points) < 2 for _, points in lines.values()):
        return []
    return [curves_chart(lines, epoch_axis(len(epochs)), y)]


def _facts(metrics: Metrics) -> Tables:
    """Return rows about the data and the build, by heading."""
    data, build = metrics["data"], metrics["build"]
    links = [("link", build["link"]), ("frames", build["encap"].upper())]
    return {
        "Run": [
            ("images to train on", f"{data['train']:,}"),
            ("images held out", f"{data['test']:,}"),
            ("images' SHA-256", data["sha256"][:16]),
        ],
        "Build": [
            ("model", build["model"]),
            ("devices", ", ".join(build["devices"])),
            ("clock", f"{build['clock_hz'] / 1e6:g} MHz"),
            ("operators", build["arithmetic"]),
            *(links if metrics["connections"] else []),
            ("network's SHA-256", build["network"][:16]),
            *_builds(metrics),
        ],
    }


def _builds(metrics: Metrics) -> Rows:
    """Return each build's folder and first checkpoint; empty for a single build."""
    builds = metrics["builds"]
    return [(build["folder"], f"from {build['from']}") for build in builds] if len(builds) > 1 else []


def _epoch_table(metrics: Metrics, machines: Sequence[str]) -> list[list[str]]:
    titles = [f"{measure} {NAMES[name]}" for measure in ("held out, %,", "loss") for name in machines]
    rows = [["epoch", "learning rate", *titles]]
    for epoch in metrics["epochs"]:
        runs = [epoch[name] for name in machines]
        accuracies = [f"{100 * run['accuracy']:.2f}" for run in runs]
        losses = ["–" if run["loss"] is None else f"{run['loss']:.6f}" for run in runs]
        rows.append([str(epoch["epoch"]), f"{epoch['lr']:.4g}", *accuracies, *losses])
    return rows
