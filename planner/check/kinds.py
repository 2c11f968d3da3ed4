"""Kinds of layer in a plan, with the checker's own rules for each, independent of ``fanin.cnn.layers``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Rules of a kind of layer."""

    inputs: int | None = 1  #: number of inputs; None for two or more
    #: words of a frame saved in memory for the backward pass. "output": the output, if the layer has a
    #: gradient. "output and scales": also one word per channel. "mask": a bit of each output, if the plan says
    #: so, else the output. "input": the input of a convolution, which always has a weight gradient. Empty: no
    #: words.
    saves: str = ""
    folds: bool = False  #: true if every position updates the sum of its channel
    constants: tuple[str, ...] = ()  #: names of constants between 0 and 1 that a plan states for the layer


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
    "relu": Rules(saves="mask"),
    "relu6": Rules(saves="mask"),
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
