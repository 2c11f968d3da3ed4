"""Constants of an ONNX file: those that it has, and those that its nodes compute from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

Constant = npt.NDArray[Any] | None  #: None: known not to depend on the frames, but not evaluated

#: Operators that exporters put between constants: shapes, limits, weights in another order. None of them makes
#: many more words than it gets.
FOLDED = frozenset(
    {
        "Add",
        "Cast",
        "CastLike",
        "Concat",
        "Div",
        "Flatten",
        "Gather",
        "Identity",
        "Mul",
        "Neg",
        "Reshape",
        "Shape",
    }
    | {"Slice", "Split", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze"}
)


def array_of(value: object) -> Constant:
    """The value of an initializer, or of a Constant's attribute; None for what is no array of numbers."""
    try:
        found = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    except Exception:  # onnx lets through what it stumbles over
        return None
    return found if found.dtype.kind in "biuf" or found.dtype.name == "bfloat16" else None


def folded(node: NodeProto, constants: Mapping[str, Constant], opset: int) -> list[Constant]:
    """Values of the node's outputs, by onnx's reference evaluator; None where it has none for them."""
    nothing: list[Constant] = [None] * len(node.output)
    feeds = {name: constants[name] for name in node.input if name}
    if node.op_type not in FOLDED or any(value is None for value in feeds.values()):
        return nothing
    entries = [
        [onnx.helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in names if name]
        for names in (feeds, node.output)
    ]
    graph = onnx.helper.make_graph([node], "constant", *entries)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        values = iter(ReferenceEvaluator(model).run(None, feeds))
    except Exception:  # the evaluator has many, of nodes that do not fit
        return nothing
    return [array_of(next(values)) if name else None for name in node.output]
