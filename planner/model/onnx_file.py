"""Loading, checks and shape inference of an ONNX file."""

from __future__ import annotations

import textwrap
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from fanin.base.errors import InputError
from fanin.cnn.layers.layer import MAX_SIZE
from fanin.planner.model.onnx_external import load_external_data

OLDEST_OPSET = 7  # in older opsets, Add and Gemm broadcast by attributes
MAX_CONCATENATION = 1 << 16  #: maximum words of a concatenation that depends on the frames: a shape
OPEN_BATCH = 7919  # number used for a batch of any size; a prime that no network has as a dimension
DOMAINS = ("", "ai.onnx")
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)

Sizes = tuple[int, ...]  #: sizes of a tensor in ONNX; 0 for unknown ones


def open_onnx(path: Path) -> ModelProto:
    """Return the model of an ONNX file, checked, with its external weights. Raises InputError."""
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
        load_external_data(path, proto)
        if not proto.functions:  # the checker can take forever for nested ones
            onnx.checker.check_model(proto)
        _check_texts(proto)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # protobuf and onnx raise many kinds
        raise InputError(f"{path}: is not a valid ONNX model: {_error_text(error)}") from None
    if proto.functions:
        raise InputError(f"{path}: has local functions; expand them with onnx.inliner")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset(proto) <= newest:
        raise InputError(f"{path}: is of opset {opset(proto)}; {OLDEST_OPSET}…{newest} are supported")
    return proto


def infer_shapes(path: Path, proto: ModelProto) -> ModelProto:
    """Return the model with all shapes inferred anew, since those of the file may have an open batch.

    Raises InputError.
    """
    del proto.graph.value_info[:]
    for entry in proto.graph.output:
        entry.type.tensor_type.ClearField("shape")
    _check_lengths(path, proto.graph)
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception as error:
        raise InputError(f"{path}: its shapes do not fit: {_error_text(error)}") from None


def _check_lengths(path: Path, graph: GraphProto) -> None:
    """Raise InputError for a concatenation longer than any shape, which onnx would compute."""
    lengths = {tensor.name: tensor.dims[0] for tensor in graph.initializer if len(tensor.dims) == 1}
    for node in graph.node:
        input_lengths = [lengths.get(name, 1) for name in node.input]
        length = sum(input_lengths) if node.op_type == "Concat" else max(input_lengths, default=1)
        if node.op_type == "Concat" and length > MAX_CONCATENATION:
            name = node.name or node.output[0]
            raise InputError(
                f"{path}: node {name} (Concat): joins {length:,} words, more than {MAX_CONCATENATION:,}"
            )
        lengths |= dict.fromkeys(node.output, length)


def folded_normalisation(path: Path, graph: GraphProto) -> tuple[str, ...]:
    """Return a note if PyTorch's exporter has folded batch normalisation into convolutions; else ().

    The older exporter renames weights that it has computed to onnx::Conv_N. The newer one records in a node's
    metadata the modules and rules from which the node was made.
    """
    folded = [
        node.name or node.output[0]
        for node in graph.node
        if node.op_type == "Conv"
        and (
            any(name.startswith("onnx::Conv_") for name in node.input[1:2])
            or any("BatchNorm" in entry.value for entry in node.metadata_props)
        )
    ]
    if not folded:
        return ()
    others = f" and {len(folded) - 1} more" if len(folded) > 1 else ""
    return (
        f"{path}: batch normalisation is folded into {folded[0]}{others}: the plan is of a network without it; "
        "docs/reference/onnx.md says how to export it",
    )


def _check_texts(proto: ModelProto) -> None:
    """Raise ValueError for a name that is not UTF-8, which protobuf returns as bytes."""
    graph = proto.graph
    entries = [*proto.opset_import, *graph.initializer, *graph.input, *graph.output, *graph.node]
    names = [getattr(entry, field, "") for entry in entries for field in ("name", "domain", "op_type")]
    for node in graph.node:
        names += [*node.input, *node.output, *(entry.name for entry in node.attribute)]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a name is not UTF-8")


def _error_text(error: Exception) -> str:
    return textwrap.shorten(str(error) or type(error).__name__, 300, placeholder=" …")  # may quote a whole node


def opset(proto: ModelProto) -> int:
    """Return the opset of ONNX's own operators; 0 if the file has none."""
    return next((entry.version for entry in proto.opset_import if entry.domain in DOMAINS), 0)


def sizes_of(entry: ValueInfoProto) -> Sizes:
    """Return the known sizes of a tensor; 0 for unknown ones."""
    has_shape = entry.type.tensor_type.HasField("shape")
    return tuple(max(dim.dim_value, 0) for dim in entry.type.tensor_type.shape.dim) if has_shape else (0,)


def read_inputs(path: Path, graph: GraphProto) -> tuple[dict[str, Sizes], int]:
    """Return the sizes of each input without the batch, and the batch. An open batch becomes ``OPEN_BATCH``."""
    weights = {tensor.name for tensor in graph.initializer}  # old files list them among the inputs
    entries = [entry for entry in graph.input if entry.name not in weights]
    for entry in entries:
        location, sizes = f"{path}: input {entry.name}", sizes_of(entry)
        if entry.type.tensor_type.elem_type not in FLOATS or len(sizes) not in (2, 4):
            raise InputError(
                f"{location}: must be floats, [batch, channels, rows, columns] or [batch, channels]"
            )
        if not all(0 < size <= MAX_SIZE for size in sizes[1:]):
            sizes_text = ", ".join(str(size or "?") for size in sizes[1:])
            raise InputError(
                f"{location}: is [batch, {sizes_text}]; all but the batch must be known, in 1…{MAX_SIZE}"
            )
    batches = {sizes_of(entry)[0] for entry in entries} - {0}
    if len(batches) > 1:
        raise InputError(f"{path}: its inputs have batches of {' and '.join(map(str, sorted(batches)))}")
    batch = max(batches, default=OPEN_BATCH)
    for entry in entries:
        entry.type.tensor_type.shape.dim[0].dim_value = batch
    return {entry.name: sizes_of(entry)[1:] for entry in entries}, batch
