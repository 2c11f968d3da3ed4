"""Which component a layer becomes."""

from __future__ import annotations

from amaranth.lib import wiring

from fanin.cnn import Stage
from fanin.hdl.layers.add import Add
from fanin.hdl.layers.avg_pool import AvgPool
from fanin.hdl.layers.bias import Bias
from fanin.hdl.layers.concat import Concat
from fanin.hdl.layers.convolution import Convolution
from fanin.hdl.layers.global_pool import GlobalAvgPool
from fanin.hdl.layers.im2col import Im2col
from fanin.hdl.layers.max_pool import MaxPool
from fanin.hdl.layers.online_norm import OnlineNorm
from fanin.hdl.layers.relu import Relu, Relu6
from fanin.hdl.layers.softmax_loss import SoftmaxLoss
from fanin.layers import ends, pointwise, window
from fanin.layers.ends import Input, Output
from fanin.layers.layer import Layer

#: What is no component: the store stands there.
ENDS: tuple[type[Layer], ...] = (Input, Output)

COMPONENTS: dict[type[Layer], type[wiring.Component]] = {
    pointwise.Relu: Relu,
    pointwise.Relu6: Relu6,
    pointwise.Add: Add,
    pointwise.Concat: Concat,
    pointwise.Bias: Bias,
    pointwise.OnlineNorm: OnlineNorm,
    ends.SoftCrossLoss: SoftmaxLoss,
    window.Conv: Convolution,
    window.DepthwiseConv: Convolution,
    window.Dense: Convolution,
    window.Im2col: Im2col,
    window.MaxPool: MaxPool,
    window.AvgPool: AvgPool,
    window.GlobalAvgPool: GlobalAvgPool,
}


def component_of(stage: Stage) -> wiring.Component:
    """The component of a stage that is not one of the ends. Raises ValueError for a layer that has none."""
    kind = type(stage.layer)
    if kind not in COMPONENTS:
        raise ValueError(f"{stage.name}: there is no hardware for layers of kind {stage.layer.kind}")
    return COMPONENTS[kind](layer=stage.layer, parallelism=stage.parallelism)
