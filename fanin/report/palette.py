"""What a colour means, on every page. The colours themselves, for light and dark, stand in report.css."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Style:
    """How a series looks. ``hatched``: bars of the second of two things that belong together."""

    colour: str
    dash: Literal["solid", "dash", "dot"] = "solid"
    width: float = 2.0
    opacity: float = 1.0
    hatched: bool = False


#: Series by what they show.
STYLES = {
    # who has computed
    "run": Style("blue"),
    "golden": Style("orange", width=8, opacity=0.5),  # beneath the run, with which it may coincide
    "binary32": Style("purple", dash="dot", width=6, opacity=0.7),
    "binary64": Style("grey", dash="dash", width=4),
    "difference": Style("red"),
    # on which samples
    "held out": Style("blue"),
    "training": Style("grey", dash="dash"),
    # what a node, a worker or a layer does
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
    # what is used
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
_LIKE = {"relu6": "relu", "global_avg_pool": "pool", "avg_pool": "pool", "im2col": "pool"}
_LIKE |= dict.fromkeys(("input", "output", "soft_cross_loss"), "end")

#: Things in an order: degrees of parallelism, hops of a frame. After the last colour comes the first.
STEPS = ("blue", "orange", "green", "purple", "red", "sky")


def kind_colour(kind: str) -> str:
    """The colour of a kind of layer."""
    return KINDS.get(_LIKE.get(kind, kind), "grey")


def step_colour(step: int) -> str:
    """The colour of the ``step``th thing, from 0."""
    return STEPS[step % len(STEPS)]
