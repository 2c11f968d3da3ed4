"""Kinds of layer that a plan may have, and the rules of each, as the checker has them: its own, and not those of
``fanin.cnn.layers``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Rules of a kind of layer.

    ``inputs``: how many it has; None: two or more. ``saves``: what a frame leaves in memory, where a gradient goes
    back. ``folds``: whether a channel's sum is used by every position. ``constants``: numbers between 0 and 1 that a
    plan states of it.
    """

    inputs: int | None = 1
    saves: str = ""  #: "output", "output and scales" of each channel; "input", of a convolution, in any case
    folds: bool = False
    constants: tuple[str, ...] = ()


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
