"""Drawing of AI Smart NIC's figures: stacked bars, curves with ideal scaling, and the trace of an iteration."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fanin.base.scratch import output_file, write_file
from fanin.evaluation.bench import smart_nic_figures as figures
from fanin.evaluation.bench.smart_nic_figures import (
    BACKWARD,
    CONVENTIONAL,
    EXPOSED,
    FORWARD,
    IDEAL,
    SLOWER,
    SMART,
    SMART_BFP,
    Bars,
    Curves,
    RunTimes,
)
from fanin.evaluation.models import smart_nic_paper as paper
from fanin.evaluation.models.smart_nic import NIC, WORKER
from fanin.evaluation.models.smart_nic_paper import Inputs
from fanin.runs.output import check_writable
from fanin.sim.ring.timeline import Span, makespan

_PART_COLOURS = {FORWARD: "#9ecae1", BACKWARD: "#4292c6", SLOWER: "black", EXPOSED: "#f28e2b"}
_LINE_STYLES: dict[str, dict[str, Any]] = {
    CONVENTIONAL: {"color": "#7f7f7f", "marker": "."},
    SMART: {"color": "#2171b5", "marker": "."},
    SMART_BFP: {"color": "#d95f02", "marker": "."},
    "default": {"color": "#c6c6c6", "linewidth": 6},  # it lies under the best of the others
    "ring": {"color": "#2171b5", "marker": "."},
    "Rabenseifner": {"color": "#59a14f", "marker": "."},
    "binomial gather, scatter": {"color": "#7f7f7f", "marker": "."},
    IDEAL: {"color": "black", "linewidth": 1, "linestyle": "--"},
}
_RTL_STYLE: dict[str, Any] = {
    "marker": "D",
    "linestyle": "",
    "color": "black",
    "markerfacecolor": "white",
    "markersize": 6,
}
_TASK_COLOURS = {"F": "#9ecae1", "B": "#4292c6", "U": "#59a14f", "A": "#f28e2b"}
_MIN_LABEL_SHARE = 0.022  # share of the time axis; a shorter task has no room for its name


def bars(
    axes: Any, stacks: Bars, notes: Mapping[str, str], measured: Mapping[str, float], measured_label: str
) -> None:
    """Draw stacked bars.

    - ``stacks``: parts of each bar, in ms.
    - ``notes``: text above a bar, by bar.
    - ``measured``: measured values, drawn as diamonds beside the bars.
    - ``measured_label``: label of the diamonds.
    """
    top = max(sum(parts.values()) for parts in stacks.values())
    handles = []
    for part, colour in _PART_COLOURS.items():
        values = [parts[part] for parts in stacks.values()]
        bottoms = [sum(list(parts.values())[: list(parts).index(part)]) for parts in stacks.values()]
        handles.append(
            axes.bar(range(len(stacks)), values, 0.55, bottoms, color=colour, edgecolor="white", label=part)
        )
    for x, (name, parts) in enumerate(stacks.items()):
        axes.text(
            x, sum(parts.values()) + 0.055 * top, notes.get(name, ""), ha="center", va="bottom", fontsize=8
        )
        if name in measured:
            axes.plot(x + 0.36, measured[name], **_RTL_STYLE)
    if measured:
        handles += axes.plot([], [], **_RTL_STYLE, label=measured_label)
    axes.set_xticks(range(len(stacks)), list(stacks))
    axes.set(ylabel="ms an iteration", ylim=(0, 1.42 * top), xlim=(-0.65, len(stacks) - 0.35))
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="upper right", ncols=2)


def curves(axes: Any, lines: Curves, measured: Curves, notes: Sequence[tuple[float, float, str]] = ()) -> None:
    """Draw speed-ups over nodes.

    - ``lines``: points of each curve.
    - ``measured``: points of the measured RTL, by curve.
    - ``notes``: x, y and text of notes to the right of a point.
    """
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), label=name, **_LINE_STYLES[name])
    for name, points in measured.items():
        axes.plot(*zip(*points, strict=True), **_RTL_STYLE | {"color": _LINE_STYLES[name]["color"]})
    if measured:
        axes.plot([], [], **_RTL_STYLE, label="RTL")
    for x, y, text in notes:
        axes.annotate(text, (x, y), xytext=(8, 0), textcoords="offset points", fontsize=8, va="center")
    max_nodes = max(x for x, _ in lines[IDEAL])
    axes.set(xlabel="nodes", ylabel="speed-up", xlim=(0, (1.45 if notes else 1.04) * max_nodes), ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def trace(axes: Any, spans: Sequence[Span], title: str, end: float) -> None:
    """Draw figure 3b: tasks of worker and NIC over time. ``end``: end of the axis, in s."""
    for span in spans:
        row = {WORKER: 1, NIC: 0}[span.task.resource]
        name = span.task.name
        colour = _TASK_COLOURS[name[0]]
        begin, seconds = 1e3 * span.begin, 1e3 * (span.end - span.begin)
        axes.barh(row, seconds, 0.7, begin, color=colour, edgecolor="white", linewidth=0.8)
        if span.end - span.begin > _MIN_LABEL_SHARE * end:
            axes.text(begin + seconds / 2, row, name, ha="center", va="center", fontsize=7)
    axes.set_yticks([0, 1], [NIC, WORKER])
    axes.set(title=title, xlim=(0, 1e3 * end), ylim=(-0.5, 1.5))
    axes.spines[["top", "right"]].set_visible(False)


def outputs(folder: Path) -> dict[str, Path]:
    """Return the files of ``write``, by name. Raises InputError if one cannot be written."""
    paths = {name: folder / name for name in (_JSON_FILE, *(f"{name}.png" for name in _PICTURES))}
    for path in paths.values():
        check_writable(path)
    return paths


def write(paths: Mapping[str, Path], inputs: Inputs, run_times: RunTimes) -> None:
    """Write figures 2, 3b and 4 as PNG, one file each, and their values as JSON."""
    import matplotlib

    matplotlib.use("Agg")  # needs no display
    from matplotlib import pyplot

    with contextlib.ExitStack() as stack:  # pictures are complete before the values replace earlier ones
        for name, (size, compose) in _PICTURES.items():
            drawing = pyplot.figure(figsize=size(run_times), layout="constrained")
            compose(drawing, inputs, run_times)
            file = stack.enter_context(output_file(paths[f"{name}.png"]))
            drawing.savefig(file, format="png", dpi=150, bbox_inches="tight")
            file.flush()
            pyplot.close(drawing)
        write_file(paths[_JSON_FILE], json.dumps(figures.values(inputs, run_times), indent=2) + "\n")


def _figure_2(drawing: Any, inputs: Inputs, run_times: RunTimes) -> None:
    bar_axes, curve_axes = drawing.subplots(1, 2)
    stacks = figures.figure_2a(inputs)
    measured_label = "training (smart NIC: RTL)"
    bars(bar_axes, stacks, figures.notes_2a(stacks), figures.measured_2a(run_times), measured_label)
    bar_axes.set_title("2a: 6 nodes, B = 1792")
    curves(curve_axes, figures.figure_2b(inputs), {})
    curve_axes.set_title("2b: overlapped, four schemes, B = 1792")


def _figure_3b(drawing: Any, inputs: Inputs, run_times: RunTimes) -> None:
    panels: dict[str, Sequence[Span]] = {"3b: the model, six layers, 6 nodes, B = 448": figures.trace(inputs)}
    if run_times.trace:
        panels["RTL, scaled to 2048 wide"] = run_times.trace
    end = max(makespan(spans) for spans in panels.values())
    rows = drawing.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (title, spans) in zip(rows, panels.items(), strict=True):
        trace(axes, spans, title, end)
    rows[-1].set_xlabel("ms")


def _figure_4(drawing: Any, inputs: Inputs, run_times: RunTimes) -> None:
    """Draw figures 4a and 4b side by side; with points of the RTL, draw a close-up of them below 4b."""
    rows = 2 if run_times.seconds else 1
    grid = drawing.add_gridspec(rows, 1 + len(paper.BATCHES), width_ratios=(1.25, 1, 1))
    stacks = figures.figure_4a(inputs)
    rtl = {name: 1e3 * s for (batch, nodes, name), s in run_times.seconds.items() if (batch, nodes) == (448, 6)}
    bar_axes = drawing.add_subplot(grid[:, 0])
    bars(bar_axes, stacks, figures.notes_4a(stacks), rtl, "training: RTL")
    bar_axes.set_title("4a: 6 nodes, B = 448")
    for column, batch in enumerate(paper.BATCHES, start=1):
        lines, points = figures.figure_4b(inputs, batch), figures.markers(inputs, run_times, batch)
        curve_axes = drawing.add_subplot(grid[0, column])
        curves(curve_axes, lines, {}, figures.notes_4b(lines, batch))
        curve_axes.set_title(f"4b: B = {batch}")
        if rows > 1:
            max_nodes = max(nodes for _, nodes, _ in run_times.seconds)
            close_up = {
                name: [point for point in line if point[0] <= max_nodes] for name, line in lines.items()
            }
            curves(drawing.add_subplot(grid[1, column]), close_up, points)


_PICTURES = {
    "smart-nic-2": (lambda measured: (10.5, 4.2), _figure_2),
    "smart-nic-3b": (lambda measured: (9.5, 3.2 if measured.trace else 1.8), _figure_3b),
    "smart-nic-4": (lambda measured: (14.5, 8.5 if measured.seconds else 4.4), _figure_4),
}
_JSON_FILE = "smart-nic.json"
