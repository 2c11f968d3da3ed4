"""Places a CNN's layers on a cluster of FPGAs. ``from fanin.planner import *`` is the model language."""

from fanin.planner.model.dsl import (
    add,
    add_input,
    add_output,
    avg_pool,
    bias,
    conv,
    dense,
    dwconv,
    global_avg_pool,
    im2col,
    online_norm,
    relu,
    relu6,
    soft_cross_loss,
)

__all__ = [
    "add",
    "add_input",
    "add_output",
    "avg_pool",
    "bias",
    "conv",
    "dense",
    "dwconv",
    "global_avg_pool",
    "im2col",
    "online_norm",
    "relu",
    "relu6",
    "soft_cross_loss",
]
