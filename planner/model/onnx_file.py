"""Loading, checks and shape inference of an ONNX file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from fanin.base.errors import InputError
from fanin.cnn.layers.layer import MAX_SIZE
from fanin.planner.model.onnx_external import load_external_data
from fanin.planner.model.onnx_inference import infer_in_child
from fanin.planner.model.onnx_load import load_proto

OLDEST_OPSET = 7  # in older opsets, Add and Gemm broadcast by attributes
MAX_CONCATENATION = 1 << 16  #: maximum words of a concatenation that depends on the frames: a shape
MAX_READ_WORDS = 1 << 22  #: maximum words of all lists, counted at each node where inference may read them
MAX_INFERENCE_BYTES = 1 << 31  #: memory that inference may take
MAX_RANK = 64  #: maximum dimensions of a tensor
_SHAPED = {"Reshape": 2, "Expand": 2, "ConstantOfShape": 1, "Unsqueeze": 2}  # input with a word per dimension
#: Operators whose results are no lists, whatever their weights are.
_NO_LIST = {"AveragePool", "BatchNormalization", "Conv", "Flatten", "Gemm", "GlobalAveragePool", "MaxPool"}
#: Operators whose results onnx computes if they are lists.
_PROPAGATED = {
    schema.name
    for schema in onnx.defs.get_all_schemas_with_history()
    if schema.has_data_propagation_function and schema.domain in ("", "ai.onnx")
}
OPEN_BATCH = 7919  # number used for a batch of any size; a prime that no network has as a dimension
DOMAINS = ("", "ai.onnx")
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)

Sizes = tuple[int, ...]  #: sizes of a tensor in ONNX; 0 for unknown ones


def open_onnx(path: Path) -> ModelProto:
    """Return the model of an ONNX file, checked, with its external weights. Raises InputError."""
    try:
        proto = load_proto(path)
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
        return infer_in_child(proto, MAX_INFERENCE_BYTES)
    except Exception as error:
        raise InputError(f"{path}: its shapes do not fit: {_error_text(error)}") from None


def _check_lengths(path: Path, graph: GraphProto) -> None:
    """Raise InputError for lists, and ranks, that are longer than any shape.

    A *list* is a tensor of one dimension, such as a shape. onnx's inference reads a list again at each node
    that has it as an input, and computes concatenations. A small file with long lists could take any time and
    memory.
    """
    lengths: dict[str, int] = {}
    total = 0
    for node, location in _nodes(path, graph, lengths):
        input_lengths = [lengths.get(name, 1) for name in node.input]
        length = sum(input_lengths) if node.op_type == "Concat" else max(input_lengths, default=1)
        if node.op_type == "Concat" and length > MAX_CONCATENATION:
            raise InputError(f"{location}: joins {length:,} words, more than {MAX_CONCATENATION:,}")
        is_shaped = node.op_type in _SHAPED and len(input_lengths) >= _SHAPED[node.op_type]
        rank = input_lengths[-1] if is_shaped else 0
        if node.op_type != "Constant":
            # an attribute has at most two numbers for a dimension (``pads``)
            rank = max([rank, *(len(attribute.ints) // 2 for attribute in node.attribute)])
        if rank > MAX_RANK:
            raise InputError(f"{location}: has {rank:,} dimensions, more than {MAX_RANK}")
        if node.op_type in _PROPAGATED or node.op_type in _SHAPED:
            total += sum(lengths.get(name, 0) for name in node.input)
        if total > MAX_READ_WORDS:
            raise InputError(f"{path}: its nodes read lists of more than {MAX_READ_WORDS:,} words in all")
        if node.op_type == "Constant":
            _add_lists(location, (attribute.t for attribute in node.attribute), lengths, node.output[0])
            numbers = sum(len(attribute.ints) + len(attribute.floats) for attribute in node.attribute)
            lengths[node.output[0]] = max(lengths.get(node.output[0], 1), numbers)
        elif node.op_type not in _NO_LIST:
            for name in node.output:
                lengths[name] = max(lengths.get(name, 1), length)


def _nodes(path: Path, graph: GraphProto, lengths: dict[str, int]) -> Iterator[tuple[NodeProto, str]]:
    """Yield the nodes of a graph and of its inner graphs, each with a text that names it for messages.

    Add the lists among the weights to ``lengths``: words by name.
    """
    _add_lists(str(path), graph.initializer, lengths)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(path, inner, lengths)
        yield node, f"{path}: node {node.name or next(iter(node.output), '')} ({node.op_type})"


def _add_lists(location: str, tensors: Iterable[TensorProto], lengths: dict[str, int], name: str = "") -> None:
    """Add the lengths of tensors that are lists to ``lengths``. Raises InputError for a tensor of a large rank.

    ``name``: name of all tensors; empty if each has its own.
    """
    for tensor in tensors:
        if len(tensor.dims) > MAX_RANK:
            raise InputError(
                f"{location}: has a tensor of {len(tensor.dims):,} dimensions, more than {MAX_RANK}"
            )
        if len(tensor.dims) == 1:
            key = name or tensor.name
            lengths[key] = max(lengths.get(key, 1), tensor.dims[0])


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
