"""A trained network as an ONNX model, which classifies images: frames as NCHW in, softmax out.

Most layers have an operator of their own in ONNX. A dense layer is a convolution whose window is the whole
image, and im2col one whose weights pick words; online normalisation takes m away and multiplies by r.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from fanin import __version__
from fanin.cnn.facts import LABELS_PORT, Network, Stage
from fanin.cnn.golden.state import State
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Shape
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.cnn.layers.window import Window

OPSET, IR_VERSION = 17, 8  # what runtimes of 2022 and later read

Words = npt.NDArray[np.float32]


def onnx_model(network: Network, states: Sequence[State]) -> ModelProto:
    """The network with the parameters of a state. Batches may have any size."""
    writer = _Writer(network)
    for index, (stage, state) in enumerate(zip(network.stages, states, strict=True)):
        if index != network.labels and not isinstance(stage.layer, Input):
            writer.add(stage, state)
    image, output = network.stages[network.images], network.stages[network.output]
    graph = helper.make_graph(
        writer.nodes,
        network.name,
        [_value(image.name, image.layer.output)],
        [helper.make_tensor_value_info(output.name, TensorProto.FLOAT, ["batch", output.layer.output.words])],
        writer.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="fanin", producer_version=__version__
    )


def convolution_weights(layer: Conv, weights: Words) -> Words:
    """Weights (ky, kx, input, output channel) as (output, input channel, ky, kx); dense ones fill the image."""
    if isinstance(layer, Dense):
        shape = layer.inputs[0]
        weights = weights.reshape(shape.h, shape.w, shape.c, layer.output_channels)
    return np.ascontiguousarray(weights.transpose(3, 2, 0, 1))


class _Writer:
    """Collects nodes and constants. A node's output is called after its stage."""

    def __init__(self, network: Network):
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._names = [stage.name for stage in network.stages]

    def add(self, stage: Stage, state: State) -> None:
        """The nodes of a stage. Raises TypeError for a layer that ONNX is not known to have."""
        layer, name = stage.layer, stage.name
        sources = [self._names[source] for source in stage.sources]
        match layer:
            case Conv():
                weights = convolution_weights(layer, state["weights"])
                self._convolve(name, sources, layer, weights, layer.groups)
            case Im2col():
                self._convolve(name, sources, layer, _picking(layer), 1)
            case Bias():
                self._node("Add", name, [*sources, self._channels(name, "bias", state["weights"])])
            case Relu6():
                limits = [
                    self._constant(name, part, np.float32(value)) for part, value in (("min", 0), ("max", 6))
                ]
                self._node("Clip", name, [*sources, *limits])
            case Relu():
                self._node("Relu", name, sources)
            case Add():
                self._node("Add", name, sources)
            case Concat():
                self._node("Concat", name, sources, axis=1)
            case MaxPool():
                self._node("MaxPool", name, sources, **_window(layer))
            case AvgPool():
                self._node("AveragePool", name, sources, count_include_pad=1, **_window(layer))
            case GlobalAvgPool():
                self._node("GlobalAveragePool", name, sources)
            case OnlineNorm():
                mean, scale = (self._channels(name, part, state[part]) for part in ("mean", "scale"))
                self._node("Sub", f"{name}/centred", [*sources, mean])
                self._node("Mul", name, [f"{name}/centred", scale])
            case SoftCrossLoss():
                self._node("Flatten", f"{name}/flat", sources[:LABELS_PORT], axis=1)
                self._node("Softmax", name, [f"{name}/flat"], axis=1)
            case Output():
                self._node("Identity", name, sources)
            case _:
                raise TypeError(f"{layer.kind} has no operator in ONNX")

    def _node(self, operator: str, name: str, inputs: Sequence[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))

    def _convolve(self, name: str, sources: Sequence[str], layer: Window, weights: Words, groups: int) -> None:
        places = _window(layer) | {"kernel_shape": weights.shape[2:]}
        self._node("Conv", name, [*sources, self._constant(name, "weights", weights)], group=groups, **places)

    def _channels(self, name: str, part: str, values: Words) -> str:
        return self._constant(name, part, values.reshape(1, -1, 1, 1))

    def _constant(self, name: str, part: str, values: npt.ArrayLike) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values), f"{name}/{part}"))
        return f"{name}/{part}"


def _window(layer: Window) -> dict[str, Any]:
    return {"kernel_shape": layer.kernel, "strides": layer.stride, "pads": layer.padding}


def _picking(layer: Im2col) -> Words:
    """Of every output channel (ky, kx, c) a one at its place."""
    (rows, columns), c = layer.kernel, layer.input.c
    ones = np.eye(rows * columns * c, dtype=np.float32).reshape(-1, rows, columns, c)
    return np.ascontiguousarray(ones.transpose(0, 3, 1, 2))


def _value(name: str, shape: Shape) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", shape.c, shape.h, shape.w])
