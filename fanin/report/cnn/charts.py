"""The charts of a CNN's training: what each layer takes of a frame's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.report.plan.drawings import kind_class
from fanin.report.svg import Axis, Canvas

WIDTH, LEFT, RIGHT = 960.0, 150.0, 880.0
_ROW, _BAR = 18.0, 12.0


def cycles_chart(layers: Sequence[Mapping[str, Any]]) -> str:
    """A bar for each layer: its planned cycles of a frame."""
    top = 10.0
    bottom = top + _ROW * len(layers)
    canvas = Canvas(WIDTH, bottom + 44, "Cycles of a frame, by layer")
    x = Axis(0, max(layer["cycles"] for layer in layers), LEFT, RIGHT)
    canvas.x_axis(x, bottom, "cycles of a frame", top=top)
    for row, layer in enumerate(layers):
        y = top + _ROW * row
        title = f"{layer['name']}: {layer['cycles']:,} cycles planned"
        canvas.text(LEFT - 8, y + 13, layer["name"], anchor="end")
        canvas.rect(LEFT, y + 3, x(layer["cycles"]) - LEFT, _BAR, f"bar {kind_class(layer['kind'])}", title)
        canvas.text(x(layer["cycles"]) + 5, y + 13, f"{layer['cycles']:,}", "value")
    return canvas.svg()
