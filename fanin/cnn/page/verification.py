"""HTML page of ``fanin cluster verify``, and the rows of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fanin.report.html import fill

Document = Mapping[str, Any]

HEAD = ("layer", "kind", "device", "frames", "words", "plan", "cycles", "of plan", "seconds", "result")
NUMBERS = (3, 4, 5, 6, 7, 8)  #: columns of ``HEAD`` with numbers


def layer_rows(document: Document) -> list[tuple[str, ...]]:
    """Return the rows of the table, the head first. ``document``: verification.json."""
    return [HEAD, *(_row(layer) for layer in document["layers"])]


def _row(layer: Mapping[str, Any]) -> tuple[str, ...]:
    planned, cycles = layer["planned_cycles"], layer["cycles"]
    return (
        layer["name"],
        layer["kind"],
        layer["device"],
        f"{layer['frames']:,}",
        f"{layer['words']:,}",
        f"{planned:,}",
        f"{cycles:,}" if cycles else "–",
        f"{100 * cycles / planned:.2f} %" if cycles else "–",
        f"{layer['build_seconds'] + layer['seconds']:,.1f}",
        _result(layer),
    )


def _result(layer: Mapping[str, Any]) -> str:
    if layer["difference"]:
        return "DIFFERS"
    return "equal" if layer["as_planned"] else "equal, NOT AS PLANNED"


def facts(document: Document) -> list[tuple[str, str]]:
    """Return the totals: names and values. ``document``: verification.json."""
    layers = document["layers"]
    planned = sum(layer["as_planned"] for layer in layers)
    differing = document["differing"]
    return [
        ("layers", f"{len(layers):,}"),
        ("words compared", f"{document['words']:,}"),
        ("bit-exact", f"NO: {differing:,} layers differ" if differing else "yes: every word of every layer"),
        ("cycles within 1 % of plan", f"{planned:,} of {len(layers):,} layers"),
        ("worker time", f"{document['seconds']:,.0f} s"),
    ]


def verification_page(document: Document) -> str:
    """Return the verification as a self-contained HTML document. ``document``: verification.json."""
    differences = [(layer["name"], layer["difference"]) for layer in document["layers"] if layer["difference"]]
    return fill(
        "verification.html.j2",
        title=f"{document['model']}: each layer's RTL on the golden model's streams",
        good=not differences and all(layer["as_planned"] for layer in document["layers"]),
        verdict="differs" if differences else "bit-exact",
        headline=facts(document),
        differences=differences,
        rows=layer_rows(document),
    )
