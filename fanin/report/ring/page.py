"""The page of a training over the ring: how it learnt, who did what when, what the NICs counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.report.curves import curves_chart
from fanin.report.html import Rows, fill
from fanin.report.ring import charts
from fanin.report.unit import Unit
from fanin.sim.ring.schedule import TRACED_STEPS, Times

Metrics = Mapping[str, Any]

#: What adds up, and where: by ``all_reduce`` and ``on``.
CARRIED = {
    ("nic", "rtl"): "NICs in RTL",
    ("nic", "model"): "on the model of the NICs' time",
    ("host", "model"): "on the model of hosts that reduce themselves",
}
_RUNS = {"the run": None, "binary32": "binary32", "binary64": "binary64"}
_TABLES = {
    "Training": ("data", "layers", "epochs", "batch", "rate", "momentum", "decay", "seed"),
    "Ring": ("nodes", "lanes", "codec", "all_reduce", "on"),
    "Hosts": ("overlap", "outstanding", "flops", "memory_bandwidth", "pcie"),
    "Network": ("gbps", "drop", "duplicate", "reorder", "corrupt", "stop"),
}
_NAMES = {
    "batch": "mini-batch of a node",
    "rate": "learning rate",
    "decay": "weight decay",
    "all_reduce": "who adds up",
    "on": "runs on",
    "outstanding": "all-reduces outstanding",
    "memory_bandwidth": "memory bandwidth",
    "pcie": "PCIe, each way",
    "gbps": "link",
    "stop": "stops",
}
_FAULTS = ("drop", "duplicate", "reorder", "corrupt")
_UNITS = {
    "flops": (1e12, "TFLOP/s"),
    "memory_bandwidth": (1e9, "GB/s"),
    "pcie": (1e9, "Gb/s"),
    "gbps": (1, "Gb/s"),
}
_COUNTERS = {
    "sent": "frames sent",
    "retransmitted": "sent again",
    "received": "received",
    "acks": "ACKs",
    "naks": "NAKs",
    "bad_fcs": "bad FCS",
    "duplicates": "duplicate",
    "out_of_order": "out of order",
    "cycles": "cycles",
    "added": "words added",
}


def title(metrics: Metrics) -> str:
    """What was trained, on what."""
    options = metrics["configuration"]
    codec = "no codec" if options["codec"] == "none" else options["codec"]
    where = "hosts reduce" if options["all_reduce"] == "host" else f"{options['lanes']} lanes, {codec}"
    sizes = f"{options['nodes']} nodes, {where}, batches of {options['batch']}"
    return f"{options['layers'].replace(',', '-')} on {options['data']}: {sizes}"


def exact_line(metrics: Metrics) -> str:
    """What was compared with the golden model, in words."""
    options, steps = metrics["configuration"], f"{metrics['steps']:,}"
    if not metrics["bit_exact"]:
        return f"NO: {metrics['error']}"
    replicas = f"all {options['nodes']} replicas are equal after each of {steps} steps"
    if options["on"] == "model":
        return f"sums are the golden model's; {replicas}"
    sums = f"{metrics['all_reduces']:,} all-reduces on each of {options['nodes']} nodes"
    return f"yes: {sums}; {replicas}"


def ring_page(metrics: Metrics, times: Sequence[Times]) -> str:
    """The run as one HTML document that refers to nothing outside itself.

    ``metrics`` is the run's run.json, of which a null is no number and in no chart; ``times`` are its hosts'.
    """
    options, epochs = metrics["configuration"], metrics["epochs"]
    nic = options["all_reduce"] == "nic"
    return fill(
        "ring.html.j2",
        title=title(metrics),
        fault=metrics["error"],
        verdict="bit-exact" if options["on"] == "rtl" else "golden sums",
        headline=_headline(metrics),
        exact=exact_line(metrics),
        resumed=_resumed(metrics),
        kinds=charts.KINDS,
        trace=charts.trace_chart(times, "NIC" if nic else "network"),
        window=_window(metrics, len(times), nic),
        parts={part: name for part, name in charts.PARTS.items() if metrics["iteration"][part] > 0},
        split=charts.split_chart(metrics["iteration"]),
        runs=list(_RUNS),
        curves=[*_curves(epochs, "accuracy, %", "accuracy", 100), *_curves(epochs, "loss", "loss", 1)],
        distance=f"{metrics['distance']:.2g}",
        counters=_counters(metrics["counters"]),
        configuration=_configuration(options),
        epochs=_epoch_table(epochs),
    )


def _headline(metrics: Metrics) -> Rows:
    iteration = metrics["iteration"]
    unit = Unit.of(iteration["seconds"])
    rows = [
        ("test accuracy", f"{100 * metrics['accuracy']:.1f} %"),
        ("iteration", unit(iteration["seconds"])),
        ("exposed", f"{100 * iteration['exposed'] / iteration['seconds']:.1f} %"),
        ("all-reduces", f"{metrics['all_reduces']:,}"),
        ("simulated", Unit.of(metrics["simulated_seconds"])(metrics["simulated_seconds"])),
    ]
    if metrics["counters"]:
        rows.append(("frames sent again", f"{metrics['retransmitted']:,} of {metrics['frames']:,}"))
    return rows


def _resumed(metrics: Metrics) -> str:
    if not metrics["resumed"]:
        return ""
    return f"goes on from {metrics['resumed']}, with epoch {metrics['first_epoch']}"


def _window(metrics: Metrics, nodes: int, nic: bool) -> str:
    """What the trace shows, in words."""
    steps = min(TRACED_STEPS, metrics["steps"])
    first = f"the first {steps} iterations" if steps > 1 else "the first iteration"
    of = f"all {nodes} nodes" if nodes <= charts.NODES else f"the first {charts.NODES} of {nodes} nodes"
    lanes = "its NIC" if nic else "what it sends and adds"
    return f"{first[0].upper()}{first[1:]} of {of}; below each worker {lanes}"


def _curves(epochs: Sequence[Metrics], label: str, key: str, scale: float) -> list[str]:
    """Over epochs; nothing where there are no two of them."""
    lines = {}
    for name, kind in _RUNS.items():
        points = [(float(epoch["epoch"]), (epoch[kind] if kind else epoch)[key]) for epoch in epochs]
        lines[name] = [(at, scale * value) for at, value in points if value is not None]
    if any(len(line) < 2 for line in lines.values()):
        return []
    return [curves_chart(lines, "epoch", label, start=float(epochs[0]["epoch"]))]


def _counters(counters: Sequence[Mapping[str, int]]) -> list[list[str]]:
    """A row for each node under a row of headings; nothing without counters."""
    if not counters:
        return []
    rows = [["node", *_COUNTERS.values()]]
    for node, each in enumerate(counters):
        rows.append([str(node), *(f"{each[name]:,}" for name in _COUNTERS)])
    return rows


def _configuration(options: Metrics) -> dict[str, Rows]:
    listed = {key for keys in _TABLES.values() for key in keys}
    codec = [key for key in options if key not in listed]  # its parameters
    tables = {}
    for heading, keys in _TABLES.items():
        shown = (*keys, *codec) if heading == "Ring" else keys
        tables[heading] = [(_NAMES.get(key, key), _value(key, options[key])) for key in shown]
    return tables


def _value(key: str, value: Any) -> str:
    if key in _FAULTS:
        return f"{100 * value:g} %"
    if key in _UNITS:
        one, unit = _UNITS[key]
        return f"{value / one:g} {unit}"
    if value == "":
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _epoch_table(epochs: Sequence[Metrics]) -> list[list[str]]:
    unit = Unit.of(epochs[-1]["simulated_seconds"])
    heads = [f"{what}, {name}" for what in ("held out, %", "loss") for name in _RUNS]
    rows = [["epoch", f"simulated, {unit.name}", *heads]]
    for epoch in epochs:
        runs = [epoch[kind] if kind else epoch for kind in _RUNS.values()]
        rows.append(
            [
                str(epoch["epoch"]),
                f"{epoch['simulated_seconds'] / unit.seconds:,.3f}",
                *(f"{100 * run['accuracy']:.2f}" for run in runs),
                *("–" if run["loss"] is None else f"{run['loss']:.6f}" for run in runs),
            ]
        )
    return rows
