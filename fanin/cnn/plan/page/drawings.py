"""Drawing of a plan on its cluster: devices around the switch with their layers (NADA, figure 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from fanin.cnn.plan.page.layout import (
    CELL,
    HEAD,
    LEAD,
    PAD,
    POINTWISE,
    ROW,
    SEGMENT_GAP,
    SEGMENT_HEAD,
    WIDTH,
    Card,
    Layer,
    Layout,
    Segment,
    Wire,
)
from fanin.report.palette import kind_colour, step_colour
from fanin.report.svg import Canvas, Point


def hop_colour(hop: int) -> str:
    """Return the colour of a wire. ``hop``: number of the wire's hop, from 1."""
    return step_colour(hop - 1)


def sign(kind: str) -> str:
    """Return the sign in a block of a pointwise layer; empty for other kinds, whose blocks show names."""
    return POINTWISE.get(kind, "")


def mapping_chart(
    plan: Mapping[str, Any], connections: Mapping[str, Any], notes: Mapping[str, str], limiting: str
) -> str:
    """Return the drawing: a card with layers for each device, and connections through the switch.

    ``notes``: a few words by device, for its card.
    ``limiting``: name of the device to mark.
    """
    layout = Layout(plan, connections)
    canvas = Canvas(WIDTH, layout.height, "Layers on the devices of the cluster")
    _switch(canvas, layout)
    for wire in sorted(layout.wires, key=lambda wire: -abs(wire.x[0] - wire.x[1])):
        _wire(canvas, wire)
    for name, card in layout.cards.items():
        css = "card limiting" if name == limiting else "card"
        canvas.rect(card.x, card.y, card.width, card.height, css)
        _device(canvas, card, notes.get(name, ""), layout.wires)
    _host(canvas, layout.cards[plan["cluster"]["host"]])
    return canvas.svg()


def _switch(canvas: Canvas, layout: Layout) -> None:
    for top, height in layout.bars:
        canvas.rect(1, top, WIDTH - 2, height, "switch")
    if layout.cards_left:
        (top, _), (bottom, height) = layout.bars[0], layout.bars[-1]
        canvas.rect(1, top, layout.cards_left - 14, bottom + height - top, "switch")
    if layout.bars:  # name of the switch in the widest gap between wires from above
        ends = [
            wire.x[end]
            for wire in layout.wires
            for end in (0, 1)
            if wire.bars[end] == 0 and wire.ends[end].down == 1
        ]
        gaps = list(pairwise(sorted([layout.cards_left, WIDTH, *ends])))
        begin, end = max(gaps, key=lambda gap: gap[1] - gap[0])
        canvas.text((begin + end) / 2, layout.bars[0][0] + 12.5, "switch", "card-note", "middle")


def _wire(canvas: Canvas, wire: Wire) -> None:
    path = _rounded(wire.path())
    canvas.polyline(_rounded(wire.switch_path()), "wire casing", wire.title)
    hop = hop_colour(wire.connection["hops"])
    canvas.polyline(path, f"wire wire{wire.width} {hop}", wire.title)
    (x, y), down = path[-1], wire.ends[1].down
    canvas.polyline([(x - 6, y), (x + 6, y), (x, y - 9 * down)], f"head {hop}", wire.title)
    for end, distance in ((0, 12), (1, 19)):
        _badge(canvas, (wire.x[end], wire.ends[end].edge + distance * wire.ends[end].down), wire)


def _badge(canvas: Canvas, center: Point, wire: Wire) -> None:
    """Draw the number of a connection in a circle."""
    canvas.circle(center, 7.5, "badge", wire.title)
    canvas.text(center[0], center[1] + 3.5, str(wire.number), "badge-text", "middle")


def _device(canvas: Canvas, card: Card, note: str, wires: Sequence[Wire]) -> None:
    left, right = card.x + PAD + 2, card.x + card.width - PAD - 2
    name = _fit(card.device["name"], right - left, 13)
    canvas.text(left, card.y + 20, name, "lane")
    if _fit(note, right - left - 8 * len(name) - 4, 10.5) == note:
        canvas.text(right, card.y + 20, note, "card-note", "end")
    y = card.y + HEAD
    for segment in card.segments:
        _segment(canvas, card, segment, y, wires)
        y += card.height_of(segment) + SEGMENT_GAP


def _segment(canvas: Canvas, card: Card, segment: Segment, y: float, wires: Sequence[Wire]) -> None:
    names = {layer["name"] for layer in segment.layers}
    left, right = card.x + PAD, card.x + card.width - PAD
    canvas.rect(left, y, right - left, card.height_of(segment), "segment", segment.title)
    left, right, middle = left + 7, right - 7, y + 12
    for wire in (wire for wire in wires if wire.connection["to"]["layer"] in names):
        _badge(canvas, (left + 7, middle), wire)
        left += 17
    if left > card.x + PAD + 7:
        canvas.text(left, middle + 4, "→", "tick")
        left += 16
    outgoing = [wire for wire in wires if wire.connection["from"]["layer"] in names]
    for wire in reversed(outgoing):
        _badge(canvas, (right - 7, middle), wire)
        right -= 17
    if outgoing:
        canvas.text(right, middle + 4, "→", "tick", "end")
        right -= 16
    texts = (f"hop {segment.hop} · {segment.size}", segment.size)
    text = next((text for text in texts if _fit(text, right - left, 11) == text), "")
    canvas.text(left, middle + 4, text, "card-note")
    for i, run in enumerate(segment.runs(card.run_length)):
        row, column = divmod(i, card.columns)
        _run(canvas, card, (card.x + 2 * PAD + column * card.pitch, y + SEGMENT_HEAD + row * ROW), run)


def _run(canvas: Canvas, card: Card, at: Point, run: Sequence[Layer]) -> None:
    """Draw a run of layers: the first with its name, the following ones with their signs."""
    x, y = at
    available = card.pitch - 8 - (CELL + 1) * (len(run) - 1)
    width = min(max(LEAD, 5.9 * len(run[0]["name"]) + 12), available)
    for i, layer in enumerate(run):
        css = kind_colour(layer["kind"])
        canvas.rect(x, y, width if i == 0 else CELL, ROW - 3, f"block {css}", layer_title(layer))
        if i == 0:
            canvas.rect(x, y, 3, ROW - 3, f"stripe {css}")
            canvas.text(x + 7, y + 11, _fit(layer["name"], width - 9, 10), "block-name")
        else:
            canvas.text(x + CELL / 2, y + 11, sign(layer["kind"]), "block-name", "middle")
        x += 1 + (width if i == 0 else CELL)


def layer_title(layer: Layer) -> str:
    """Return a line on a layer's kind and resources."""
    words = layer.get("parameter_words", 0)
    parameters = (
        f", {words:,} parameters {'on chip' if layer['parameters'] == 'chip' else 'in DRAM'}" if words else ""
    )
    return (
        f"{layer['name']} ({layer['kind']}): {layer['cycles']:,} cycles, {layer['dsp']:,} DSPs, "
        f"{layer['luts']:,} LUTs, {layer['ram_bits']:,} bits of RAM{parameters}"
    )


def _host(canvas: Canvas, card: Card) -> None:
    x = card.x + 12
    canvas.line((x + 34, 30), (x + 34, card.y), "pcie", f"host at {card.device['name']}: PCIe")
    canvas.rect(x, 4, 68, 26, "card", "host")
    canvas.text(x + 34, 21, "host", "lane", "middle")
    canvas.text(x + 42, 50, "PCIe", "tick")


def _fit(text: str, width: float, size: float) -> str:
    """Return ``text``, cut to about ``width`` px; empty if too little of it fits. ``size``: font size in px."""
    capacity = int(width / (0.57 * size))
    if len(text) <= capacity:
        return text
    return text[: capacity - 1] + "…" if capacity > 3 else ""


def _rounded(points: Sequence[Point], radius: float = 6.0) -> list[Point]:
    """Return the path with corners rounded to quarters of a circle."""
    path = [points[0]]
    for previous_point, corner, next_point in zip(points, points[1:], points[2:], strict=False):
        lengths = math.dist(previous_point, corner), math.dist(corner, next_point)
        cut_length = min(radius, *(length / 2 for length in lengths))
        if cut_length < 0.5:
            continue
        for step in range(5):
            angle = step * math.pi / 8
            a, b = (
                (1 - math.sin(angle)) * cut_length / lengths[0],
                (1 - math.cos(angle)) * cut_length / lengths[1],
            )
            x, y = (
                c + a * (p - c) + b * (q - c)
                for c, p, q in zip(corner, previous_point, next_point, strict=True)
            )
            path.append((x, y))
    return [*path, points[-1]]
