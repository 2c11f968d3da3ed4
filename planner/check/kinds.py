"""Kinds of layer that a plan may have, with the checker's rules of each; none is from ``fanin.cnn.layers``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Rules of a kind of layer."""

    inputs: int | None = 1  #: how many it has; None: two or more
    #: words of a frame that wait in memory for a gradient: "output", "output and scales" of each channel, or
    #: "input" of a convolution, which has a weight gradient in any case
    saves: str = ""
    folds: bool = False  #: whether every position uses the sum of its channel
    constants: tuple[str, ...] = ()  #: numbers between 0 and 1 that a plan states of it


KINDS = {
    "input": Rules(inputs=0),
    "conv": Rules(saves="input"),
    "dwconv": Rules(saves="input"),
    "dense": Rules(saves="input"),
    "im2col": Rules(),
    "max_pool": Rules(saves="output"),
    "avg_pool": Rules(),
    "global_avg_pool": Rules(folds=True),
    "bias": Rules(folds=True),
    "relu": Rules(saves="output"),
    "relu6": Rules(saves="output"),
    "online_norm": Rules(
        saves="output and scales", folds=True, constants=("forward_decay", "backward_decay", "epsilon")
    ),
    "add": Rules(inputs=2),
    "concat": Rules(inputs=None),
    "soft_cross_loss": Rules(inputs=2),
    "output": Rules(),
}
CONVOLUTIONS = ("conv", "dwconv", "dense")
WINDOWS = (*CONVOLUTIONS, "im2col", "max_pool", "avg_pool")
