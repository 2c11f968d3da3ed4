"""Charts of a plan's resources on its devices, and of throughput over clusters (NADA, figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fanin.report.chart import Axis, Bar, Chart
from fanin.report.palette import STYLES, Style, kind_colour, step_colour

DEVICES_PER_CHART = 16

RESOURCES = {
    "dsp": "DSPs",
    "luts": "LUTs",
    "ram_bits": "RAM bits",
    "ram_blocks": "RAM blocks",
    "dram_bytes": "DRAM",
    "dram_read": "DRAM read",
    "dram_write": "DRAM write",
    "network": "network",
}

PER_DEVICE = ("network", "dram_bytes")  # resources whose use is not divided among layers

Plan = Mapping[str, Any]


def figure(value: float) -> str:
    """Return a number as text with four significant digits, or with all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}"


def percent(share: float) -> str:
    """Return a share in percent; a share below 0.01 % never reads as zero."""
    return "< 0.01 %" if 0 < share < 1e-4 else f"{100 * share:.2f} %"


def limited(plan: Plan) -> dict[str, str]:
    """Return the names of the resources that limit at least one device, by key."""
    return {
        key: name
        for key, name in RESOURCES.items()
        if any(used.get(key) is not None for used in plan["utilisation"].values())
    }


def utilisation_charts(plan: Plan) -> list[Chart]:
    """Return charts with a group of bars for each device, one bar for each resource."""
    devices = [device["name"] for device in plan["cluster"]["devices"]]
    highest = max((used[key] or 0 for used in plan["utilisation"].values() for key in limited(plan)), default=0)
    return [
        _utilisation(plan, devices[begin : begin + DEVICES_PER_CHART], max(1.0, highest))
        for begin in range(0, len(devices), DEVICES_PER_CHART)
    ]


def _utilisation(plan: Plan, devices: Sequence[str], highest: float) -> Chart:
    chart = Chart(
        "Utilisation of the devices",
        Axis("", names=devices),
        Axis.share("of what the device has", high=1.06 * highest),
    )
    chart.level(1.0)
    for key, name in limited(plan).items():
        shares = [(place, device, plan["utilisation"][device].get(key)) for place, device in enumerate(devices)]
        bars = [
            Bar(place, share, f"{device}, {name}: {100 * share:.1f} %", text=f"{100 * share:.0f}")
            for place, device, share in shares
            if share is not None
        ]
        if bars:
            chart.bars(name, bars, STYLES[key])
    return chart


def kind_shares(plan: Plan) -> dict[str, dict[str, float]]:
    """Return each kind of layer's share of the cluster's capacity, by resource, in order of appearance.

    Of several kinds of RAM block, the scarcest is returned.
    """
    shares = {}
    for key in limited(plan):
        if key in PER_DEVICE:
            continue
        pools = [_kind_use(plan, key, pool) for pool in _pools(plan, key)]
        if pools:
            shares[key] = max(pools, key=lambda pool: sum(pool.values()))
    return shares


def _pools(plan: Plan, key: str) -> list[str]:
    """Return the kinds of RAM block; a single empty name for other resources."""
    if key != "ram_blocks":
        return [""]
    rams = [ram for device in plan["cluster"]["devices"] for ram in device["ram"]]
    return list(dict.fromkeys(ram["kind"] for ram in rams if ram["blocks"]))


def _kind_use(plan: Plan, key: str, pool: str) -> dict[str, float]:
    """Return each kind of layer's share of a resource. Devices without a limit of the resource do not count."""
    capacity = {device["name"]: _capacity(device, key, pool) for device in plan["cluster"]["devices"]}
    total = sum(amount for amount in capacity.values() if amount)
    used: dict[str, float] = {}
    for layer in plan["layers"]:
        if capacity[layer["device"]] and total:
            need = layer["ram_blocks_by_kind"].get(pool, 0) if pool else layer[key]
            scale = plan["throughput"] if key.startswith("dram") else 1
            used[layer["kind"]] = used.get(layer["kind"], 0) + need * scale / total
    return used


def _capacity(device: Mapping[str, Any], key: str, pool: str) -> float | None:
    if pool:
        return sum(ram["blocks"] or 0 for ram in device["ram"] if ram["kind"] == pool)
    return device["dram_bits_per_second" if key.startswith("dram") else key]


def kind_chart(plan: Plan) -> Chart:
    """Return a chart with a bar for each resource of the cluster, split by kind of layer."""
    shares = kind_shares(plan)
    chart = Chart(
        "Shares of the kinds of layer",
        Axis.share("of what the cluster has", high=1.0),
        rows=[RESOURCES[key] for key in shares],
        row=30,
        bars="stack",
    )
    for kind in dict.fromkeys(kind for kinds in shares.values() for kind in kinds):
        bars = [
            Bar(row, kinds[kind], f"{RESOURCES[key]}, {kind}: {100 * kinds[kind]:.2f} %", text=kind)
            for row, (key, kinds) in enumerate(shares.items())
            if kinds.get(kind)
        ]
        if bars:
            chart.bars(kind, bars, Style(kind_colour(kind)))
    return chart


def parallel_name(factor: int) -> str:
    """Return NADA's name for a degree of model parallelism."""
    return "no MP" if factor == 1 else f"MP{factor}"


def by_factor(sweep: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """Return the points of a sweep that have a throughput, by degree of model parallelism; both ascend."""
    points = sorted((p for p in sweep if p["throughput"]), key=lambda p: (p["mp"], p["devices"]))
    return {
        factor: [p for p in points if p["mp"] == factor] for factor in dict.fromkeys(p["mp"] for p in points)
    }


def sweep_chart(sweep: Sequence[Mapping[str, Any]]) -> Chart:
    """Return a chart of throughput over devices, a line for each degree of model parallelism.

    Whiskers reach to the bound. Lower lines are wider, so that they show where lines coincide.
    """
    series = by_factor(sweep)
    points = [point for line in series.values() for point in line]
    highest = max(max(point["throughput"], point["bound"]) for point in points)
    chart = Chart(
        "Throughput over devices",
        Axis.count("devices", max(point["devices"] for point in points)),
        Axis("frames per second", ",", ",", ends=(0.0, 1.06 * highest)),
        height=380,
    )
    for step, (factor, line) in enumerate(series.items()):
        name = parallel_name(factor)
        chart.line(
            name,
            [(point["devices"], point["throughput"]) for point in line],
            Style(step_colour(step), width=2 + 4 * step, opacity=1 / (1 + step / 2)),
            hints=[
                f"{name}, {point['devices']} devices: {figure(point['throughput'])} frames per second, "
                f"proven bound {figure(point['bound'])} (gap {percent(point['gap'])})"
                for point in line
            ],
            up_to=[point["bound"] for point in line],
        )
    return chart


def limit_words(plan: Plan) -> Iterator[str]:
    """Yield the limiting device, then its limiting resource."""
    limit = plan["limit"]
    yield limit["device"]
    yield f"cycles of {limit['layer']}" if limit["resource"] == "cycles" else RESOURCES[limit["resource"]]
