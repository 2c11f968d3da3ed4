"""Shape inference of onnx in a child process with bounded memory, since onnx may crash where memory ends."""

from __future__ import annotations

import onnx
from onnx import ModelProto

from fanin.base.child import ChildDied, in_child


def infer_in_child(proto: ModelProto, max_bytes: int) -> ModelProto:
    """Return the model with inferred shapes.

    The child may take ``max_bytes`` of memory more than this process has. Raises ValueError with onnx's text,
    or if the memory does not suffice.
    """
    try:
        return ModelProto.FromString(in_child(lambda: _infer(proto), max_bytes))
    except ChildDied:
        raise ValueError(f"inference takes more than {max_bytes >> 20:,} MiB") from None


def _infer(proto: ModelProto) -> bytes:
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True).SerializeToString()
    except Exception as error:  # onnx raises many kinds
        raise MemoryError if "bad_alloc" in str(error) else error from None
