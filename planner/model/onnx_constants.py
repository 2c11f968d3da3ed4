"""Constants of an ONNX file: its own, and those that its nodes compute from them."""

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
Constant = Array | None  #: None: does not depend on the frames, but is not evaluated

#: Operators that exporters insert between constants: shapes, limits, reordered weights.
FOLDED = frozenset((
    "Add", "Cast", "CastLike", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul", "Neg",
    "Reshape", "Shape", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
))  # fmt: skip
#: Limit of computed constants: this many times the words of the file's own, plus this many words.
MAX_GROWTH, MOST_WORDS = 4, 1 << 24


def array_of(value: object) -> Constant:
    """Return the value of an initializer or of a Constant's attribute; None if it is no array of numbers."""
    try:
        found = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    except Exception:  # onnx does not reject everything that it cannot convert
        return None
    return found if found.dtype.kind in "biuf" or found.dtype.name == "bfloat16" else None


def fold_constants(proto: ModelProto, opset: int) -> None:
    """Replace nodes that compute constants by initializers with their values.

    Nodes are kept if their values would take memory that the file's size does not bound.
    """
    graph = proto.graph
    constants = {tensor.name: array_of(tensor) for tensor in graph.initializer}
    left = MAX_GROWTH * sum(value.size for value in constants.values() if value is not None) + MOST_WORDS
    kept = []
    for node in graph.node:
        values = _values(node, constants, opset, left)
        if values is None:
            kept.append(node)
            continue
        constants |= values
        left -= sum(value.size for value in values.values())
        if node.op_type != "Constant":
            graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
        else:
            kept.append(node)
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(nodes)


def constant_of(node: NodeProto) -> Constant:
    """Return the value of a Constant node."""
    return array_of(onnx.helper.get_attribute_value(node.attribute[0])) if node.attribute else None


def _values(
    node: NodeProto, constants: Mapping[str, Constant], opset: int, most: int
) -> dict[str, npt.NDArray[Any]] | None:
    """Evaluate a node's outputs by onnx's reference evaluator.

    Returns None if an output has no value, or if they have more than ``most`` words.
    """
    if node.op_type == "Constant":
        value = constant_of(node)
        return None if value is None else {node.output[0]: value}
    names = node.input[:1] if node.op_type == "CastLike" else node.input
    known = {name: value for name in names if name and (value := constants.get(name)) is not None}
    if node.op_type not in FOLDED or node.domain not in DOMAINS or len(known) < len(set(filter(None, names))):
        return None
    if node.op_type == "CastLike":  # its target has the type of the frames: float
        return {node.output[0]: known[names[0]].astype(np.float32)}
    inputs, outputs = (
        [onnx.helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in some if name]
        for some in (known, node.output)
    )
    graph = onnx.helper.make_graph([node], "constant", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        if _words(node, [known[name] for name in names if name]) > most:
            return None
        found = [array_of(value) for value in ReferenceEvaluator(model).run(None, known)]
    except Exception:  # the evaluator raises many kinds, for nodes that do not fit
        return None
    pairs = zip(filter(None, node.output), found, strict=True)
    values = {name: value for name, value in pairs if value is not None}
    return values if len(values) == len(found) else None


def _words(node: NodeProto, inputs: list[Array]) -> float:
    """Return an upper limit of the words of a folded node's outputs."""
    match node.op_type:
        case "Add" | "Div" | "Mul" | "Sub":
            shapes = [value.shape for value in inputs]
        case "Expand":
            shapes = [inputs[0].shape, tuple(np.asarray(inputs[1]).ravel().tolist())]
        case "Concat":
            return sum(value.size for value in inputs)
        case "Gather":
            axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
            rows = inputs[0].shape[axis] if -inputs[0].ndim <= axis < inputs[0].ndim else 1
            return inputs[0].size / max(rows, 1) * inputs[1].size
        case _:
            return max(value.size for value in inputs)
    rank = max(map(len, shapes))
    wide = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return float(np.prod([max(sizes) for sizes in zip(*wide, strict=True)], dtype=np.float64))
