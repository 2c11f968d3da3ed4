"""HTML page of a plan: throughput, placement of layers, and resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fanin.cnn.plan.page import charts
from fanin.cnn.plan.page.drawings import hop_colour, mapping_chart, sign
from fanin.cnn.plan.page.layout import in_order
from fanin.report.html import fill
from fanin.report.palette import kind_colour

Table = list[list[str]]


def plan_page(
    plan: Mapping[str, Any], connections: Mapping[str, Any], sweep: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return the page of a plan, a self-contained HTML document.

    ``plan``: contents of plan.json, as ``planner/plan/write.py`` writes it. In ``utilisation``, ``luts``,
    ``ram_bits``, ``ram_blocks`` and ``dram_bytes`` are None if the device has no such limit.
    ``connections``: contents of connections.json, from the same module.
    ``sweep``: plans of a sweep. Each has ``devices``, ``mp`` (degree of model parallelism), ``throughput``,
    ``bound`` and ``gap``.
    """
    points = charts.by_factor(sweep)
    hops = {c["hops"] for c in connections["connections"]}
    return fill(
        "plan.html.j2",
        title=f"{plan['model']} on {plan['cluster']['name']}",
        optimal=plan["solver"]["status"] == "optimal",
        gap=charts.percent(plan["gap"]),
        about=_description(plan, len(sweep)),
        headline=_headline(plan),
        mapping=mapping_chart(plan, connections, _notes(plan), plan["limit"]["device"]),
        kinds=_kinds(plan),
        hops={hop: hop_colour(hop) for hop in sorted(hops)},
        utilisation=charts.utilisation_charts(plan),
        shares=charts.kind_chart(plan),
        sweep=charts.sweep_chart(sweep) if points else None,
        devices=_device_table(plan),
        layers=_layer_table(plan),
        connections=_connection_table(plan, connections),
        solver=[(name.replace("_", " "), _value(value)) for name, value in plan["solver"].items()],
    )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,g}"
    return f"{value:,}" if type(value) is int else str(value)


def _headline(plan: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures of the headline: name, figure and unit."""
    used = {layer["device"] for layer in plan["layers"]}
    device, resource = charts.limit_words(plan)
    flow = ("in the flow model", charts.figure(plan["flow_throughput"]), "frames/s: the build holds frames up")
    return [
        ("throughput", charts.figure(plan["throughput"]), "frames/s"),
        *([flow] if plan["flow_throughput"] < plan["throughput"] else []),
        ("proven bound", charts.figure(plan["bound"]), f"frames/s, gap {charts.percent(plan['gap'])}"),
        ("with updates", charts.figure(plan["throughput_with_update"]), f"frames/s, batch {plan['batch']:,}"),
        ("devices used", str(len(used)), f"of {len(plan['cluster']['devices'])}"),
        ("limited by", device, resource),
    ]


def _description(plan: Mapping[str, Any], plans: int) -> str:
    """Return a line on the model and the plan. ``plans``: number of plans in the sweep."""
    layers = plan["layers"]
    words = sum(layer.get("parameter_words", 0) for layer in layers)
    split = "no model parallelism" if plan["split"] == 1 else f"model parallelism {plan['split']}"
    best = f"the fastest of {plans} plans: " if plans > 1 else ""
    return f"{best}{len(layers):,} layers, {words:,} parameters, {split}, batches of {plan['batch']:,} frames"


def _notes(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the most used resource of each device as text."""
    notes = {}
    for device, used in plan["utilisation"].items():
        key = max(charts.limited(plan), key=lambda key: used[key] or 0)
        notes[device] = f"{charts.RESOURCES[key]} {100 * used[key]:.0f} %" if used[key] else "unused"
    if plan["limit"]["resource"] == "cycles":
        notes[plan["limit"]["device"]] = f"cycles of {plan['limit']['layer']}"
    return notes


def _kinds(plan: Mapping[str, Any]) -> dict[str, list[tuple[str, str, int]]]:
    """Return the kinds of layer by colour, each with sign, name and number of layers."""
    kinds: dict[str, list[tuple[str, str, int]]] = {}
    for kind, count in Counter(layer["kind"] for layer in plan["layers"]).items():
        kinds.setdefault(kind_colour(kind), []).append((sign(kind), kind, count))
    return kinds


def _device_table(plan: Mapping[str, Any]) -> Table:
    resources = {**charts.limited(plan), "connections": "connections"}
    rows = [["device", "family", "MHz", "layers", *(f"{name}, %" for name in resources.values())]]
    count = Counter(layer["device"] for layer in plan["layers"])
    for device in plan["cluster"]["devices"]:
        used = plan["utilisation"][device["name"]]
        shares = ["–" if used[key] is None else f"{100 * used[key]:.1f}" for key in resources]
        clock = f"{device['clock_hz'] / 1e6:g}"
        rows.append([device["name"], device["family"], clock, str(count[device["name"]]), *shares])
    return rows


def _layer_table(plan: Mapping[str, Any]) -> Table:
    facts = ["layer", "kind", "device", "output", "parallelism"]
    costs = ["cycles", "DSPs", "LUTs", "RAM, kb", "blocks", "read, Mb", "write, Mb", "parameters"]
    return [[*facts, *costs], *(_layer_row(layer) for layer in plan["layers"])]


def _layer_row(layer: Mapping[str, Any]) -> list[str]:
    parallel = [f"{key} {value}" for key, value in layer["parallelism"].items() if value > 1]
    words, memory = layer.get("parameter_words", 0), "DRAM" if layer["parameters"] == "dram" else "chip"
    return [
        layer["name"],
        layer["kind"],
        layer["device"],
        "×".join(map(str, layer["output"])),
        " ".join(parallel) or "–",
        f"{layer['cycles']:,}",
        f"{layer['dsp']:,}",
        f"{layer['luts']:,}",
        f"{layer['ram_bits'] / 1e3:,.1f}",
        f"{layer['ram_blocks']:,}",
        f"{layer['dram_read'] / 1e6:,.2f}",
        f"{layer['dram_write'] / 1e6:,.2f}",
        f"{words:,} {memory}" if words else "–",
    ]


def _connection_table(plan: Mapping[str, Any], connections: Mapping[str, Any]) -> Table:
    rows = [["", "id", "from", "to", "bits per frame", "Gb/s each way", "priority", "hops"]]
    for place, c in enumerate(in_order(plan, connections), start=1):
        ends = [f"{end['layer']} on {end['device']}" for end in (c["from"], c["to"])]
        figures = [f"{c['bits']:,}", f"{c['bits_per_second'] / 1e9:.3g}", str(c["priority"]), str(c["hops"])]
        rows.append([str(place), str(c["id"]), *ends, *figures])
    return rows
