"""Meaning of colours on all pages. The colours themselves, for light and dark, are in report.css."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Style:
    """Appearance of a series. ``hatched``: bars of the second of two related quantities."""

    colour: str
    dash: Literal["solid", "dash", "dot"] = "solid"
    width: float = 2.0
    opacity: float = 1.0
    hatched: bool = False


#: Style of a series by its content.
STYLES = {
    # computed by
    "run": Style("blue"),
    "golden": Style("orange", width=8, opacity=0.5),  # drawn below the run's line, with which it may coincide
    "binary32": Style("purple", dash="dot", width=6, opacity=0.7),
    "binary64": Style("grey", dash="dash", width=4),
    "difference": Style("red"),
    # samples
    "held out": Style("blue"),
    "training": Style("grey", dash="dash"),
    # activity of a node, a worker or a layer
    "forward": Style("blue"),
    "backward": Style("sky"),
    "compute": Style("blue"),
    "update": Style("green"),
    "communication": Style("orange"),
    "sum": Style("purple"),
    "waiting": Style("grey", opacity=0.6),
    "blocked": Style("red"),
    "overhead": Style("ink", opacity=0.6),
    "planned": Style("ink", opacity=0.35),
    # resources
    "dsp": Style("blue"),
    "luts": Style("sky"),
    "ram_bits": Style("green"),
    "ram_blocks": Style("green", hatched=True),
    "dram_bytes": Style("grey"),
    "dram_read": Style("purple"),
    "dram_write": Style("purple", hatched=True),
    "network": Style("orange"),
    "network_in": Style("orange", hatched=True),
}

#: Kinds of layer; other kinds are grey.
KINDS = {
    "conv": "blue",
    "dwconv": "sky",
    "dense": "purple",
    "online_norm": "orange",
    "bias": "yellow",
    "relu": "green",
    "add": "red",
    "pool": "brown",
    "end": "ink",
}
_SAME_COLOUR = {"relu6": "relu", "global_avg_pool": "pool", "avg_pool": "pool", "im2col": "pool"}
_SAME_COLOUR |= dict.fromkeys(("input", "output", "soft_cross_loss"), "end")

#: Colours of ordered things: degrees of parallelism, hops of a frame. They repeat after the last.
STEPS = ("blue", "orange", "green", "purple", "red", "sky")


def kind_colour(kind: str) -> str:
    """Return the colour of a kind of layer."""
    return KINDS.get(_SAME_COLOUR.get(kind, kind), "grey")


def step_colour(step: int) -> str:
    """Return the colour of a step, numbered from 0."""
    return STEPS[step % len(STEPS)]
