"""Which component a layer becomes."""

from __future__ import annotations

from amaranth.lib import wiring

from fanin.cnn.facts import Stage
from fanin.cnn.layers import (
    add,
    avg_pool,
    bias,
    concat,
    conv,
    dense,
    dwconv,
    global_avg_pool,
    im2col,
    max_pool,
    online_norm,
    relu,
    relu6,
    soft_cross_loss,
)
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.ingress import Ingress
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Layer, Storage
from fanin.cnn.layers.output import Output
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
from fanin.hdl.layers.streamed_dense import StreamedDense

#: What is no component: the store stands there, or the network.
ENDS: tuple[type[Layer], ...] = (Input, Output, Ingress, Egress)

COMPONENTS: dict[type[Layer], type[wiring.Component]] = {
    relu.Relu: Relu,
    relu6.Relu6: Relu6,
    add.Add: Add,
    concat.Concat: Concat,
    bias.Bias: Bias,
    online_norm.OnlineNorm: OnlineNorm,
    soft_cross_loss.SoftCrossLoss: SoftmaxLoss,
    conv.Conv: Convolution,
    dwconv.DepthwiseConv: Convolution,
    dense.Dense: Convolution,
    im2col.Im2col: Im2col,
    max_pool.MaxPool: MaxPool,
    avg_pool.AvgPool: AvgPool,
    global_avg_pool.GlobalAvgPool: GlobalAvgPool,
}

#: Of a layer whose parameters lie in DRAM.
SPILLED: dict[type[Layer], type[wiring.Component]] = {dense.Dense: StreamedDense}


def component_class(stage: Stage) -> type[wiring.Component]:
    """What a stage that is not one of the ends becomes. Raises ValueError where there is no hardware for it."""
    kind = type(stage.layer)
    components = COMPONENTS if stage.storage is Storage.CHIP else SPILLED
    if kind not in components:
        where = "" if stage.storage is Storage.CHIP else " with parameters in DRAM"
        raise ValueError(f"{stage.name}: there is no hardware for layers of kind {stage.layer.kind}{where}")
    return components[kind]


def component_of(stage: Stage) -> wiring.Component:
    """The component of a stage that is not one of the ends. Raises ValueError for a layer that has none."""
    return component_class(stage)(layer=stage.layer, parallelism=stage.parallelism)
