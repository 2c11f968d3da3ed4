"""Placement of a CNN's layers on a cluster of FPGAs. ``from fanin.planner import *`` is the model language."""

from fanin.planner.model.dsl import (
    add,
    add_input,
    add_output,
    avg_pool,
    bias,
    concat,
    conv,
    dense,
    dwconv,
    global_avg_pool,
    im2col,
    language,
    max_pool,
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
    "concat",
    "conv",
    "dense",
    "dwconv",
    "global_avg_pool",
    "im2col",
    "max_pool",
    "online_norm",
    "relu",
    "relu6",
    "soft_cross_loss",
]

# Kinds of layer without a function above: a new file in fanin/cnn/layers is in the language at once.
_derived = {name: function for name, function in language().items() if name not in __all__}
globals().update(_derived)
__all__.extend(_derived)
