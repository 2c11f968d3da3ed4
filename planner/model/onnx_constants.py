"""Constants of an ONNX file: those stored in the file, and those that nodes compute from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from fanin.planner.model.onnx_file import DOMAINS

Array = npt.NDArray[Any]
Constant = Array | None  #: value; None if it does not depend on the frames, but is not evaluated

#: Operators that exporters insert between constants: shapes, limits, reordered weights.
FOLDED = frozenset((
    "Add", "Cast", "CastLike", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul", "Neg",
    "Reshape", "Shape", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
))  # fmt: skip
#: Limit of computed constants: MAX_RATIO times the words of the file's constants, plus MAX_EXTRA_WORDS.
MAX_RATIO, MAX_EXTRA_WORDS = 4, 1 << 24


def array_of(value: object) -> Constant:
    """Return the value of an initializer or of a Constant's attribute; None if it is no array of numbers."""
    try:
        array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    except Exception:  # onnx does not reject everything that it cannot convert
        return None
    return array if array.dtype.kind in "biuf" or array.dtype.name == "bfloat16" else None


def fold_constants(proto: ModelProto, opset: int) -> None:
    """Replace nodes that compute constants by initializers with the values.

    Nodes remain if their values would exceed the limit of computed constants.
    """
    graph = proto.graph
    constants = {tensor.name: array_of(tensor) for tensor in graph.initializer}
    budget = MAX_RATIO * sum(value.size for value in constants.values() if value is not None) + MAX_EXTRA_WORDS
    remaining = []
    for node in graph.node:
        values = _values(node, constants, opset, budget)
        if values is None:
            remaining.append(node)
            continue
        constants |= values
        budget -= sum(value.size for value in values.values())
        if node.op_type != "Constant":
            graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
        else:
            remaining.append(node)
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in remaining]
    del graph.node[:]
    graph.node.extend(nodes)


def constant_of(node: NodeProto) -> Constant:
    """Return the value of a Constant node."""
    return array_of(onnx.helper.get_attribute_value(node.attribute[0])) if node.attribute else None


def _values(
    node: NodeProto, constants: Mapping[str, Constant], opset: int, limit: int
) -> dict[str, npt.NDArray[Any]] | None:
    """Return a node's outputs, evaluated by onnx's reference evaluator.

    Return None if an output cannot be evaluated, or if the outputs have more than ``limit`` words.
    """
    if node.op_type == "Constant":
        value = constant_of(node)
        return None if value is None else {node.output[0]: value}
    names = node.input[:1] if node.op_type == "CastLike" else node.input
    inputs_by_name = {name: value for name in names if name and (value := constants.get(name)) is not None}
    if (
        node.op_type not in FOLDED
        or node.domain not in DOMAINS
        or len(inputs_by_name) < len(set(filter(None, names)))
    ):
        return None
    if node.op_type == "CastLike":  # its target has the type of the frames: float
        return {node.output[0]: inputs_by_name[names[0]].astype(np.float32)}
    inputs, outputs = (
        [onnx.helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in tensors if name]
        for tensors in (inputs_by_name, node.output)
    )
    graph = onnx.helper.make_graph([node], "constant", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        if _words(node, [inputs_by_name[name] for name in names if name]) > limit:
            return None
        results = [array_of(value) for value in ReferenceEvaluator(model).run(None, inputs_by_name)]
    except Exception:  # the evaluator raises many kinds, for nodes that do not fit
        return None
    pairs = zip(filter(None, node.output), results, strict=True)
    values = {name: value for name, value in pairs if value is not None}
    return values if len(values) == len(results) else None


def _words(node: NodeProto, inputs: list[Array]) -> float:
    """Return an upper bound of the words of a folded node's outputs."""
    match node.op_type:
        case "Add" | "Div" | "Mul" | "Sub":
            shapes = [value.shape for value in inputs]
        case "Expand":
            shapes = [inputs[0].shape, tuple(np.asarray(inputs[1]).ravel().tolist())]
        case "Concat":
            return sum(value.size for value in inputs)
        case "Gather":
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            rows = inputs[0].shape[axis] if -inputs[0].ndim <= axis < inputs[0].ndim else 1
            return inputs[0].size / max(rows, 1) * inputs[1].size
        case _:
            return max(value.size for value in inputs)
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return float(np.prod([max(sizes) for sizes in zip(*padded, strict=True)], dtype=np.float64))
