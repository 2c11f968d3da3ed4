"""ONNX model of a trained network: images (NCHW) in, softmax out.

A layer's file has its conversion to nodes. Most kinds of layer have an ONNX operator. The others become:

- dense: a convolution whose window is the whole image
- im2col: a convolution whose weights select words
- online normalisation: a subtraction of m and a multiplication by r
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from fanin import __version__
from fanin.cnn.facts import Network
from fanin.cnn.layers.arithmetic import Float32, State
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Shape

OPSET, IR_VERSION = 17, 8  # supported by runtimes of 2022 and later


def onnx_model(network: Network, states: Sequence[State]) -> ModelProto:
    """Return the ONNX model of a network's state, for batches of any size.

    Raises TypeError for a layer without a conversion.
    """
    nodes: list[NodeProto] = []
    constants: list[TensorProto] = []
    for index, (stage, state) in enumerate(zip(network.stages, states, strict=True)):
        if index != network.labels and not isinstance(stage.layer, Input):
            stage_nodes = StageNodes(stage.name)
            stage.layer.onnx_nodes(
                stage_nodes, [network.stages[source].name for source in stage.sources], state
            )
            nodes += stage_nodes.nodes
            constants += stage_nodes.constants
    image, output = network.stages[network.images], network.stages[network.output]
    graph = helper.make_graph(
        nodes,
        network.name,
        [_value(image.name, image.layer.output)],
        [helper.make_tensor_value_info(output.name, TensorProto.FLOAT, ["batch", output.layer.output.words])],
        constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="fanin", producer_version=__version__
    )


@dataclass(frozen=True)
class StageNodes:
    """Nodes and constants of a stage's layer. The output of the last node has the stage's name."""

    name: str
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def node(self, operator: str, inputs: Sequence[str], *, part: str = "", **attributes: Any) -> str:
        """Add a node. Return its output's name. ``part``: name of the node in the stage; empty for the last."""
        name = f"{self.name}/{part}" if part else self.name
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(self, part: str, values: npt.ArrayLike) -> str:
        """Add a constant; return its name."""
        self.constants.append(numpy_helper.from_array(np.asarray(values), f"{self.name}/{part}"))
        return f"{self.name}/{part}"

    def channels(self, part: str, values: Float32) -> str:
        """Add a constant that has a word per channel; return its name."""
        return self.constant(part, values.reshape(1, -1, 1, 1))


def _value(name: str, shape: Shape) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", shape.c, shape.h, shape.w])
