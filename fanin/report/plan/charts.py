"""What a plan takes of its devices, and the throughput over clusters (NADA, figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fanin.report.plan.drawings import kind_class
from fanin.report.svg import Axis, Canvas

WIDTH, LEFT, RIGHT = 960.0, 64.0, 944.0
GROUPS = 16  # devices in a chart
CROSSED = 0.9  # share from which the 100 % line and the figure above a bar meet

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

PER_DEVICE = ("network", "dram_bytes")  # no layer's own

Plan = Mapping[str, Any]


def figure(value: float) -> str:
    """Four digits of a number, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}"


def percent(share: float) -> str:
    """A small share in words that never say nothing where there is something."""
    return "< 0.01 %" if 0 < share < 1e-4 else f"{100 * share:.2f} %"


def limited(plan: Plan) -> dict[str, str]:
    """The resources that some device counts, with their names."""
    return {
        key: name
        for key, name in RESOURCES.items()
        if any(used.get(key) is not None for used in plan["utilisation"].values())
    }


def utilisation_charts(plan: Plan) -> list[str]:
    """Per device a group of bars, one for each resource."""
    devices = [device["name"] for device in plan["cluster"]["devices"]]
    highest = max((used[key] or 0 for used in plan["utilisation"].values() for key in limited(plan)), default=0)
    return [
        _utilisation(plan, devices[begin : begin + GROUPS], max(1.0, highest))
        for begin in range(0, len(devices), GROUPS)
    ]


def _utilisation(plan: Plan, devices: Sequence[str], highest: float) -> str:
    top, bottom = 36.0, 246.0
    canvas = Canvas(WIDTH, bottom + 28, "Utilisation of the devices")
    y = Axis(0, 112 * highest, bottom, top)
    canvas.y_axis(y, LEFT, "of what the device has, %", right=RIGHT)
    canvas.line((LEFT, y(100)), (RIGHT, y(100)), "mark", "100 %")
    shown = limited(plan)
    group = (RIGHT - LEFT) / len(devices)
    width = min(34.0, group * 0.86 / len(shown))
    for i, device in enumerate(devices):
        centre = LEFT + group * (i + 0.5)
        canvas.text(centre, bottom + 19, device, "label", "middle")
        for k, (key, name) in enumerate(shown.items()):
            share = plan["utilisation"][device].get(key)
            if share is None:
                continue
            x = centre + (k - len(shown) / 2) * width
            title = f"{device}, {name}: {100 * share:.1f} %"
            canvas.rect(x + 0.5, y(100 * share), width - 1, bottom - y(100 * share), f"bar use-{key}", title)
            if share and width >= 17:
                above = 1.0 if CROSSED < share < 1 else share  # a figure that the line would strike through
                canvas.text(x + width / 2, y(100 * above) - 4, f"{100 * share:.0f}", "value", "middle")
    canvas.line((LEFT, bottom), (RIGHT, bottom), "axis")
    return canvas.svg()


def kind_shares(plan: Plan) -> dict[str, dict[str, float]]:
    """Per resource each kind's share of what the whole cluster has, kinds in order of appearance.

    Of several kinds of RAM block it is the scarcest that counts.
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
    """Kinds of RAM block; other resources are of one kind."""
    if key != "ram_blocks":
        return [""]
    rams = [ram for device in plan["cluster"]["devices"] for ram in device["ram"]]
    return list(dict.fromkeys(ram["kind"] for ram in rams if ram["blocks"]))


def _kind_use(plan: Plan, key: str, pool: str) -> dict[str, float]:
    """Each kind's share of a resource of the devices that count it."""
    capacity = {device["name"]: _capacity(device, key, pool) for device in plan["cluster"]["devices"]}
    total = sum(have for have in capacity.values() if have)
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


def kind_chart(plan: Plan) -> str:
    """A bar per resource of the cluster, its parts the kinds of layer."""
    shares = kind_shares(plan)
    row, top, left = 34.0, 8.0, 96.0
    bottom = top + row * len(shares)
    canvas = Canvas(WIDTH, bottom + 40, "Shares of the kinds of layer")
    x = Axis(0, 100, left, RIGHT)
    canvas.x_axis(x, bottom, "of what the cluster has, %", top=top, count=10)
    for i, (key, kinds) in enumerate(shares.items()):
        y, done = top + row * i, 0.0
        canvas.text(left - 10, y + row / 2 + 4, RESOURCES[key], "label", "end")
        canvas.rect(left, y + 5, RIGHT - left, row - 10, "free")
        for kind, share in kinds.items():
            if share:
                begin, done = x(100 * done), done + share
                title = f"{RESOURCES[key]}, {kind}: {100 * share:.2f} %"
                _part(canvas, (begin, x(100 * done)), (y + 5, row - 10), kind, title)
    return canvas.svg()


def _part(canvas: Canvas, x: tuple[float, float], y: tuple[float, float], kind: str, title: str) -> None:
    width = x[1] - x[0]
    canvas.rect(x[0], y[0], width, y[1], f"bar {kind_class(kind)}", title)
    if width > 7 * len(kind) + 8:
        canvas.text(x[0] + width / 2, y[0] + y[1] / 2 + 4, kind, f"inside on-{kind_class(kind)}", "middle")


def parallel_name(factor: int) -> str:
    """What NADA calls a degree of model parallelism."""
    return "no MP" if factor == 1 else f"MP{factor}"


def by_factor(sweep: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """The points with a throughput per degree of model parallelism, both ascending."""
    found = sorted((p for p in sweep if p["throughput"]), key=lambda p: (p["mp"], p["devices"]))
    return {factor: [p for p in found if p["mp"] == factor] for factor in dict.fromkeys(p["mp"] for p in found)}


def sweep_chart(sweep: Sequence[Mapping[str, Any]]) -> str:
    """Throughput over devices, a line per degree of model parallelism; whiskers reach to the bound."""
    top, bottom = 34.0, 330.0
    series = by_factor(sweep)
    points = [point for line in series.values() for point in line]
    canvas = Canvas(WIDTH, bottom + 44, "Throughput over devices")
    counts = [point["devices"] for point in points]
    x = Axis(min(counts) - 0.4, max(counts) + 0.4, LEFT, RIGHT)
    y = Axis(0, 1.06 * max(max(p["throughput"], p["bound"]) for p in points), bottom, top)
    canvas.y_axis(y, LEFT, "frames per second", right=RIGHT, count=6)
    for count in sorted(set(counts)):
        canvas.text(x(count), bottom + 18, str(count), "tick", "middle")
        canvas.line((x(count), bottom), (x(count), bottom + 4), "axis")
    canvas.line((LEFT, bottom), (RIGHT, bottom), "axis")
    canvas.text((LEFT + RIGHT) / 2, bottom + 38, "devices", "label", "middle")
    for index, (factor, line) in reversed(list(enumerate(series.items()))):
        _series(canvas, (x, y), index, parallel_name(factor), line)
    return canvas.svg()


def _series(
    canvas: Canvas, axes: tuple[Axis, Axis], index: int, name: str, line: Sequence[Mapping[str, Any]]
) -> None:
    """One line; those beneath others are wider, so that they show where lines coincide."""
    x, y = axes
    css = f"sweep{index % 4}"
    at = [(x(point["devices"]), y(point["throughput"])) for point in line]
    canvas.polyline(at, f"series {css}", name)
    for (left, height), point in zip(at, line, strict=True):
        bound = y(point["bound"])
        title = (
            f"{name}, {point['devices']} devices: {figure(point['throughput'])} frames per second, "
            f"proven bound {figure(point['bound'])} (gap {percent(point['gap'])})"
        )
        canvas.line((left, height), (left, bound), f"whisker {css}", title)
        canvas.line((left - 6, bound), (left + 6, bound), f"whisker {css}", title)
        canvas.circle((left, height), 4.0 + 1.5 * index, f"dot {css}", title)


def limit_words(plan: Plan) -> Iterator[str]:
    """What sets the period: the device, then its resource."""
    limit = plan["limit"]
    yield limit["device"]
    yield f"cycles of {limit['layer']}" if limit["resource"] == "cycles" else RESOURCES[limit["resource"]]
