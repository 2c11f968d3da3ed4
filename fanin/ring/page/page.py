"""Page of a training over the ring: learning curves, timeline, the NICs' counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.report.chart import Axis, Chart
from fanin.report.curves import curves_chart, epoch_axis, loss_axis
from fanin.report.html import Rows, Tables, fill
from fanin.report.unit import Unit
from fanin.ring.page import charts
from fanin.sim.ring.schedule import TRACED_STEPS, Times

Metrics = Mapping[str, Any]

_CODECS = {
    "none": "no codec",
    "bfp": "BFP",
    "inceptionn": "INCEPTIONN's codec",
    "mx": "MX",
    "bf16": "bfloat16",
    "fp16": "binary16",
}
#: INCEPTIONN's hosts by the exchange within a group, or of all nodes, and the exchange between groups.
_INCEPTIONN = {
    ("ring", None): "hosts in a ring",
    ("aggregator", None): "workers and aggregator",
    ("ring", "ring"): "hosts in a ring of rings",
    ("ring", "aggregator"): "rings of hosts and an aggregator",
    ("aggregator", "aggregator"): "workers and aggregators",
}
_RUNS = {"the run": None, "binary32": "binary32", "binary64": "binary64"}
#: Counters shown: those of a ring node, or of the transport of INCEPTIONN's hosts.
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
    "segments": "segments sent",
    "repeated": "sent again",
    "acknowledgements": "ACKs",
    "timeouts": "timeouts",
}
#: Columns of traffic shown: of the rounds of groups, or of the legs of INCEPTIONN's exchange.
_TRAFFIC = {
    "round": "round",
    "leg": "leg",
    "level": "level",
    "seconds": "time",
    "data_bytes": "bytes of data",
    "packets": "packets",
    "raw": "of them raw",
    "acknowledgements": "ACKs",
    "payload": "bytes of payload",
    "wire": "bytes on the wire",
    "header_share": "headers",
}


def title(metrics: Metrics) -> str:
    """Return the title: network, data, and the nodes that trained it."""
    options = metrics["configuration"]
    codec = _CODECS[options["codec"]]
    groups = f" in groups of {options['groups']}" if options["groups"] else ""
    sizes = f"{options['nodes']} nodes{groups}, {_adder_text(options)}, {codec}, batches of {options['batch']}"
    return f"{options['layers'].replace(',', '-')} on {options['data']}: {sizes}"


def _adder_text(options: Metrics) -> str:
    """Return the text that names the adder: hosts, or NICs with their lanes."""
    if options["system"] == "inceptionn":
        return _INCEPTIONN[options["exchange"], options["above"]]
    return "hosts reduce" if options["all_reduce"] == "host" else f"{options['lanes']} lanes"


def platform_text(options: Metrics) -> str:
    """Return the text that names the platform of the run."""
    if options["on"] == "rtl":
        return "NICs in RTL"
    return f"on the model of {'NICs' if options['all_reduce'] == 'nic' else 'hosts that reduce themselves'}"


def exact_line(metrics: Metrics) -> str:
    """Return in words which results were compared with the golden model."""
    options, steps = metrics["configuration"], f"{metrics['steps']:,}"
    if not metrics["bit_exact"]:
        return f"NO: {metrics['error']}"
    if options["system"] == "inceptionn":
        return f"yes: the weights of all nodes, after each of {steps} steps"
    replicas = f"all {options['nodes']} replicas are equal after each of {steps} steps"
    if options["on"] == "model":
        return f"sums are the golden model's; {replicas}"
    sums = f"{metrics['all_reduces']:,} all-reduces on each of {options['nodes']} nodes"
    return f"yes: {sums}; {replicas}"


def notes(metrics: Metrics) -> list[str]:
    """Return a sentence about the resumed folder and one about stops that came after the run's end, if any."""
    sentences = []
    if metrics["resumed"]:
        sentences.append(f"this run resumes {metrics['resumed']}, with epoch {metrics['first_epoch']}")
    if metrics["configuration"]["stop"]:  # a node that stops ends the run
        sentences.append(
            f"--stop {metrics['configuration']['stop']} changed nothing: the run had ended by then"
        )
    return sentences


def ring_page(metrics: Metrics, times: Sequence[Times], configuration: Tables) -> str:
    """Render the run as one HTML document without external references.

    - ``metrics``: the run's run.json; a null is not a number and is left out of charts.
    - ``times``: of its hosts.
    - ``configuration``: the run's options.
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
        notes=notes(metrics),
        trace=charts.trace_chart(times, "NIC" if nic else "network") if times else None,
        window=_window(metrics, len(times), nic),
        split=charts.split_chart(metrics["iteration"]),
        curves=[
            *_curves(epochs, "accuracy", Axis.share("accuracy of held-out samples")),
            *_curves(epochs, "loss", loss_axis()),
        ],
        distance=f"{metrics['distance']:.2g}",
        counters=_counters(metrics["counters"]),
        traffic=_traffic(metrics["traffic"]),
        configuration=configuration,
        epochs=_epoch_table(epochs),
    )


def _headline(metrics: Metrics) -> Rows:
    iteration = metrics["iteration"]
    unit = Unit.of(iteration["seconds"])
    rows = [
        ("test accuracy", f"{100 * metrics['accuracy']:.1f} %"),
        ("iteration", unit(iteration["seconds"])),
        _waiting(iteration),
        ("all-reduces", f"{metrics['all_reduces']:,}"),
        ("simulated", Unit.of(metrics["simulated_seconds"])(metrics["simulated_seconds"])),
    ]
    if metrics["counters"]:
        rows.append(("frames sent again", f"{metrics['retransmitted']:,}"))
    return rows


def _waiting(iteration: Mapping[str, float]) -> tuple[str, str]:
    """Return the share of an iteration that is spent on the network."""
    part, name = ("exposed", "exposed") if "exposed" in iteration else ("communicate", "communication")
    return name, f"{100 * iteration[part] / iteration['seconds']:.1f} %"


def _window(metrics: Metrics, nodes: int, nic: bool) -> str:
    """Return in words which part of the run the trace shows."""
    steps = min(TRACED_STEPS, metrics["steps"])
    first = f"the first {steps} iterations" if steps > 1 else "the first iteration"
    nodes_text = f"all {nodes} nodes" if nodes <= charts.NODES else f"the first {charts.NODES} of {nodes} nodes"
    second_row = "its NIC" if nic else "what it sends and adds"
    return f"{first[0].upper()}{first[1:]} of {nodes_text}; below each worker {second_row}"


def _curves(epochs: Sequence[Metrics], key: str, y: Axis) -> list[Chart]:
    """Return a chart over epochs; none with fewer than two points per line."""
    lines = {}
    for name, kind in _RUNS.items():
        points = [(epoch["epoch"], (epoch[kind] if kind else epoch)[key]) for epoch in epochs]
        lines[name] = (
            kind or "run",
            [(epoch_number, value) for epoch_number, value in points if value is not None],
        )
    if any(len(points) < 2 for _, points in lines.values()):
        return []
    return [curves_chart(lines, epoch_axis(len(epochs)), y)]


def _counters(counters: Sequence[Mapping[str, int]]) -> list[list[str]]:
    """Return a header row and a row per node; empty without counters."""
    if not counters:
        return []
    names = [name for name in _COUNTERS if name in counters[0]]
    rows = [["node", *(_COUNTERS[name] for name in names)]]
    for node, node_counters in enumerate(counters):
        rows.append([str(node), *(f"{node_counters[name]:,}" for name in names)])
    return rows


def _traffic(traffic: Sequence[Metrics]) -> list[list[str]]:
    """Return a header row and a row per round or leg; empty without traffic."""
    if not traffic:
        return []
    names = [name for name in _TRAFFIC if name in traffic[0]]
    return [
        [_TRAFFIC[name] for name in names],
        *([_cell(name, row[name]) for name in names] for row in traffic),
    ]


def _cell(name: str, value: Any) -> str:
    if name == "seconds":
        return Unit.of(value)(value)
    if name == "header_share":
        return f"{100 * value:.1f} %"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _epoch_table(epochs: Sequence[Metrics]) -> list[list[str]]:
    unit = Unit.of(epochs[-1]["simulated_seconds"])
    measure_columns = [f"{measure}, {name}" for measure in ("held out, %", "loss") for name in _RUNS]
    rows = [["epoch", f"simulated, {unit.name}", *measure_columns]]
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
