"""Reader of ONNX files: converts the inference graph of a CNN, as PyTorch exports it, to a model.

The planner places the training of the network, for which only shapes matter; ``onnx_weights`` returns the
weights for its start. Batch normalisation becomes online normalisation and a bias (as in NADA), dropout is
removed, and a loss with labels is added after the output. Nodes that the output does not need are skipped.
Errors are InputErrors: file, node, cause. docs/reference/onnx.md lists the operators.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto

from fanin.base.errors import InputError
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.kinds import layer_kinds
from fanin.cnn.layers.layer import Layer, Shape, check_limits
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.cnn.layers.window import Pair, Window, find_padding, pair
from fanin.planner.model.graph import Builder, Model, kind_of
from fanin.planner.model.onnx_constants import array_of, constant_of, fold_constants
from fanin.planner.model.onnx_file import (
    DOMAINS,
    Sizes,
    folded_normalisation,
    infer_shapes,
    open_onnx,
    opset,
    read_inputs,
    sizes_of,
)

Weights = npt.NDArray[np.float32]
LABELS = "label_one_hot"  #: name of the input that is added for the loss


def load_onnx(path: Path) -> Model:
    """Return the model in an ONNX file, with a loss after its only output. Raises InputError of one line."""
    return _read(path)[0]


def onnx_weights(path: Path) -> dict[str, Weights]:
    """Return the trained words in an ONNX file, by the names of layers in ``load_onnx``'s model.

    - Convolution: (ky, kx, input channel of the group, output channel).
    - Dense: (1, 1, input word, output channel), with input words in the order row, column, channel.
    - Bias: (channel,).

    The scale of a normalisation is left out, as online normalisation has none. Raises InputError as
    ``load_onnx``.
    """
    model, weights = _read(path)
    return {model.nodes[index].name: values for index, values in weights.items()}


def _read(path: Path) -> tuple[Model, dict[int, Weights]]:
    try:
        proto = open_onnx(path)
        frames, batch = read_inputs(path, proto.graph)
        fold_constants(proto, opset(proto))
        reader = _Reader(path, infer_shapes(path, proto), batch)
        return reader.read(frames), reader.weights
    except InputError as error:
        raise InputError(" ".join(str(error).splitlines())) from None


class _Names:
    """Names for layers: the node's name if it is valid and unique, else the layer's kind with a number."""

    def __init__(self, nodes: Collection[NodeProto], reserved: Collection[str]) -> None:
        occurrences = Counter(node.name.lstrip("/") for node in nodes)
        self._usable = {
            name for name, number in occurrences.items() if name and name.isprintable() and number == 1
        }
        self._usable -= set(reserved)
        self._used = {*self._usable, *reserved}
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(1))

    def find(self, node: NodeProto, kind: str, part: str = "") -> str:
        """Return a name for a layer of a node. ``part``: name within the node if it becomes several layers."""
        node_name = node.name.lstrip("/")
        if node_name in self._usable and not part:
            return node_name
        preferred = [f"{node_name}/{part}"] if node_name in self._usable else []
        numbered = (f"{kind}{number}" for number in self._numbers[kind])
        name = next(name for name in chain(preferred, numbered) if name not in self._used)
        self._used.add(name)
        return name


@dataclass(frozen=True)
class _Value:
    """Tensor that depends on the frames."""

    index: int  #: index of the layer whose output it is
    shape: Shape
    sizes: Sizes  #: sizes in ONNX without the batch
    softmax: bool = False  #: true for a softmax, which the loss contains, so that no layer may follow

    def __str__(self) -> str:
        return f"[{', '.join(map(str, ('batch', *self.sizes)))}]"


class _Reader:
    """Converter of a graph's nodes to layers, in order.

    ``batch``: size of the batch in all shapes.
    """

    def __init__(self, path: Path, proto: ModelProto, batch: int) -> None:
        self.path, self.graph, self.opset, self.batch = path, proto.graph, opset(proto), batch
        self.builder = Builder()
        self.values: dict[str, _Value] = {}  # by tensor name
        self.weights: dict[int, Weights] = {}  # by index of the layer
        self.users: defaultdict[str, list[str]] = defaultdict(list)  # layers that train a constant, by its name
        self.notes: list[str] = []
        self.node = NodeProto()  # current node
        self.attributes: dict[str, Any] = {}
        self.shapes = {entry.name: sizes_of(entry) for entry in (*self.graph.value_info, *self.graph.output)}
        self.shapes |= {tensor.name: tuple(tensor.dims) for tensor in self.graph.initializer}
        self.constants = {tensor.name: array_of(tensor) for tensor in self.graph.initializer}
        for node in self.graph.node:
            self._fold(node)

    def _fold(self, node: NodeProto) -> None:
        """Add a node's outputs to ``constants`` if they do not depend on the frames.

        The value of a Constant is added; None for another node, which is not evaluated.
        """
        has_graph = any(entry.HasField("g") or entry.graphs for entry in node.attribute)  # may read any tensor
        if node.op_type == "Constant" and node.attribute:
            value = constant_of(node)
        elif node.input and all(name in self.constants for name in node.input if name) and not has_graph:
            value = None
        else:
            return
        self.constants |= dict.fromkeys(node.output, value)

    def read(self, frames: dict[str, Sizes]) -> Model:
        """Return the model. ``frames``: sizes of each input."""
        outputs = [entry.name for entry in self.graph.output]
        if len(outputs) != 1:
            raise InputError(
                f"{self.path}: has {len(outputs)} outputs ({', '.join(outputs)}); the loss takes one"
            )
        nodes = self._needed_nodes(outputs[0])
        self.names = _Names(nodes, {*frames, *outputs, LABELS})
        for name, sizes in frames.items():
            c, h, w = (*sizes, 1, 1)[:3]
            shape = Shape(h, w, c)
            self.values[name] = _Value(self._input(name, shape), shape, sizes)
        for node in nodes:
            self.node = node
            self.attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
            with self._naming_node():
                if node.domain not in DOMAINS or node.op_type not in OPERATORS:
                    raise ValueError(
                        f"is not supported; supported are {', '.join(sorted(OPERATORS))}, Constant"
                    )
                self.values[node.output[0]] = OPERATORS[node.op_type](self)
        return self._finish(outputs[0])

    def _needed_nodes(self, output: str) -> list[NodeProto]:
        """Return the nodes that ``output`` needs, without those that compute shapes."""
        nodes = self.graph.node
        makers = {n: i for i, node in enumerate(nodes) for n in node.output if n and n not in self.constants}
        indices: set[int] = set()
        queue = [output]
        while queue:
            index = makers.get(queue.pop())
            if index is not None and index not in indices:
                indices.add(index)
                queue += nodes[index].input[: 1 if nodes[index].op_type == "Reshape" else None]
        return [nodes[index] for index in sorted(indices)]

    def _input(self, name: str, shape: Shape) -> int:
        return self.builder.add(partial(Input, shape=shape), name=name, location=str(self.path))

    def _finish(self, output: str) -> Model:
        """Add a loss with labels after the output, and return the model."""
        file, logits = str(self.path), self.values.get(output)
        if logits is None:
            raise InputError(f"{file}: its output {output} does not depend on an input")
        if logits.shape.words != logits.shape.c:
            raise InputError(f"{file}: its output {output} is {logits.shape}; the loss takes 1×1×classes")
        sources = [logits.index, self._input(LABELS, logits.shape)]
        name = self.names.find(NodeProto(), SoftCrossLoss.kind)
        loss = self.builder.add(SoftCrossLoss, sources, name=name, location=file)
        self.builder.add(Output, [loss], name=output, location=file)
        model = self.builder.finish(self.path.stem, file)
        shared = [
            f"{self.path}: {name} is shared by {' and '.join(users)}: each trains weights of its own"
            for name, users in self.users.items()
            if len(users) > 1
        ]
        return replace(model, notes=(*folded_normalisation(self.path, self.graph), *self.notes, *shared))

    @property
    def _location(self) -> str:
        name = self.node.name or next(filter(None, self.node.output), "without a name")
        domain = "" if self.node.domain in DOMAINS else f"{self.node.domain}."
        return f"{self.path}: node {name} ({domain}{self.node.op_type})"

    @contextmanager
    def _naming_node(self) -> Iterator[None]:
        """Turn ValueErrors about the current node into InputErrors that name it."""
        try:
            yield
        except ValueError as error:
            raise InputError(f"{self._location}: {error}") from None

    def _name(self, position: int) -> str:
        """Return the name of an input of the node; empty if it has none."""
        return self.node.input[position] if position < len(self.node.input) else ""

    def _value(self, position: int = 0, *, last: bool = False) -> _Value:
        """Return an input of the node. ``last``: true if the input may be a softmax."""
        name = self._name(position)
        if not name or name not in self.values:
            kind = "a constant" if name in self.constants else "not the first output of a node"
            raise ValueError(f"its input {name!r} is {kind}")
        if self.values[name].softmax and not last:
            raise ValueError("follows a softmax, which may only stand at the end")
        return self.values[name]

    def _image(self) -> _Value:
        """Return the first input, which must have channels, rows and columns."""
        x = self._value()
        if x.sizes != (x.shape.c, x.shape.h, x.shape.w):
            raise ValueError(f"its input is {x}, not [batch, channels, rows, columns]")
        return x

    def _weights(self, position: int) -> Sizes:
        """Return the sizes of a constant."""
        name = self._name(position)
        if name not in self.constants:
            raise ValueError(f"its input {name!r} must be a constant")
        if 0 in self.shapes.get(name, (0,)):
            raise ValueError(f"its input {name!r} has no sizes that onnx could infer")
        return self.shapes[name]

    def _numbers(self, position: int) -> list[float]:
        """Return a constant's value."""
        value = self.constants.get(self._name(position))
        if value is None:
            raise ValueError(f"its input {self._name(position)!r} must be numbers in the file")
        return [float(number) for number in value.ravel()]

    def _use_weights(self, y: _Value, position: int, order: Callable[[Weights], Weights]) -> _Value:
        """Use a constant input of the node as initial weights of ``y``'s layer. Return ``y``.

        ``order``: function that reorders ONNX's weights to fanin's order.
        """
        name = self._name(position)
        value, layer = self.constants.get(name), self.builder.name(y.index)
        if value is None:
            cause = f"{name} is computed by nodes that are not evaluated"
            self.notes.append(f"{self._location}: {cause}: {layer} begins with random weights")
        else:
            self.weights[y.index] = order(value.astype(np.float32))
        self.users[name].append(layer)
        return y

    def _layer(self, make: Callable[..., Layer], *sources: _Value, sizes: Sizes = (), part: str = "") -> _Value:
        """Add a layer for the node.

        Return its output. ``sizes``: ONNX sizes of the output if it is no image.
        """

        def build(**arguments: Any) -> Layer:
            with self._naming_node():
                layer = make(**arguments)
                check_limits(layer)
                return layer

        build.kind = kind_of(make)  # type: ignore[attr-defined]
        name = self.names.find(self.node, kind_of(make), part)
        index = self.builder.add(
            build, [source.index for source in sources], name=name, location=self._location
        )
        shape = self.builder.output(index)
        return _Value(index, shape, sizes or (shape.c, shape.h, shape.w))

    def _add_bias(self, x: _Value, position: int, sizes: Sizes, part: str = "bias") -> _Value:
        """Add a bias by channel: the constant input at ``position``, which has ``sizes``."""
        by_channel = (x.shape.c,) + (1,) * (len(x.sizes) - 1)
        if x.sizes[0] != x.shape.c or sizes not in (by_channel, (1, *by_channel)):
            raise ValueError(f"{list(sizes)} is not a bias by channel of {x}")
        return self._use_weights(self._layer(Bias, x, sizes=x.sizes, part=part), position, np.ravel)

    def _add_channel_bias(self, x: _Value, position: int) -> _Value:
        """Add a bias from an input of one dimension, if the node has it."""
        if not self._name(position):
            return x
        return self._add_bias(x, position, self._weights(position) + (1,) * (len(x.sizes) - 1))

    def _window(self, make: Callable[..., Layer], x: _Value, kernel: object, **fields: int) -> _Value:
        if any(step != 1 for step in self.attributes.get("dilations", ())):
            raise ValueError(f"dilations {self.attributes['dilations']} are not supported")
        size, stride = pair("kernel", kernel), pair("stride", self.attributes.get("strides", 1))
        sides = self._padding(x.shape, size, stride)
        return self._layer(partial(make, kernel=size, stride=stride, padding=sides, **fields), x)

    def _padding(self, shape: Shape, kernel: Pair, stride: Pair) -> Sizes:
        """Return (top, left, bottom, right), ONNX's own order."""
        auto = self.attributes.get("auto_pad", b"NOTSET")
        if auto not in AUTO_PAD:
            raise ValueError(f"auto_pad {auto!r} is not one of ONNX's values")
        pads = tuple(self.attributes.get("pads", (0, 0, 0, 0)))
        if len(pads) != 4 or min(pads) < 0:
            raise ValueError(f"pads {list(pads)} are not supported: only four, none of them negative, are")
        top, left, bottom, right = find_padding(AUTO_PAD[auto] or pads, shape, kernel, stride)
        return (bottom, right, top, left) if auto == b"SAME_LOWER" else (top, left, bottom, right)

    def conv(self) -> _Value:
        """Convert Conv. Sizes are those of its weights, with which ``kernel_shape`` must agree."""
        weights, groups = self._weights(1), self.attributes.get("group", 1)
        if len(weights) != 4:
            raise ValueError(f"its weights are {list(weights)}; only two-dimensional convolution is supported")
        x, (output, inputs, *kernel) = self._image(), weights
        if inputs * groups != x.shape.c:
            raise ValueError(f"its weights are {list(weights)} in {groups} groups; its input is {x}")
        if (stated := self.attributes.get("kernel_shape", kernel)) != kernel:
            raise ValueError(f"its weights are {list(weights)}; kernel_shape is {stated}")
        make = DepthwiseConv if 1 < groups == x.shape.c == output else Conv
        y = self._window(make, x, kernel, output_channels=output, groups=groups)
        return self._add_channel_bias(self._use_weights(y, 1, lambda w: w.transpose(2, 3, 1, 0)), 2)

    def max_pool(self) -> _Value:
        """Convert MaxPool without its second output, the indices."""
        if any(self.node.output[1:]):
            raise ValueError("its second output, the places, is not supported")
        return self._pool(MaxPool)

    def avg_pool(self) -> _Value:
        """Convert AveragePool. Means are over whole windows, so padding must count."""
        y = self._pool(AvgPool)
        layer = self.builder.layer(y.index)
        assert isinstance(layer, AvgPool)
        if any(layer.padding) and not self.attributes.get("count_include_pad"):
            raise ValueError("count_include_pad must be 1 where there is padding: means are over whole windows")
        return y

    def _pool(self, make: type[Window]) -> _Value:
        y = self._window(make, self._image(), self.attributes.get("kernel_shape"))
        if self.attributes.get("ceil_mode") and self.shapes.get(self.node.output[0]) != (self.batch, *y.sizes):
            raise ValueError("ceil_mode is not supported where a window reaches over the edge")
        return y

    def norm(self) -> _Value:
        """Convert batch and instance normalisation."""
        x = self._value()
        if self._weights(1) != (x.shape.c,) or x.sizes[0] != x.shape.c:
            raise ValueError(f"its scale is {list(self._weights(1))}; its input is {x}")
        return self._add_channel_bias(self._layer(OnlineNorm, x, sizes=x.sizes), 2)

    def convert_equal(self, kind: type[Layer]) -> _Value:
        """Convert an operator that equals a kind of layer, of any shape, with attributes as its fields."""
        fields = {field: self.attributes[n] for n, field in kind.onnx_fields.items() if n in self.attributes}
        return self._layer(partial(kind, **fields), self._value(), sizes=self._value().sizes)

    def clip(self) -> _Value:
        """Convert Clip with limits 0 and 6. The limits are attributes below opset 11, and inputs from 11 on."""
        limits = [self.attributes[name] for name in ("min", "max") if name in self.attributes]
        limits += [number for position in (1, 2) if self._name(position) for number in self._numbers(position)]
        if limits != [0, 6]:
            raise ValueError(f"its limits are {limits}; only [0, 6], which is ReLU6, is supported")
        return self._layer(Relu6, self._value(), sizes=self._value().sizes)

    def add(self) -> _Value:
        """Convert Add of two feature maps, or of a map and a bias."""
        for position in (0, 1):
            if self._name(position) in self.constants:
                return self._add_bias(self._value(1 - position), position, self._weights(position), part="")
        x, y = self._value(0), self._value(1)
        if x.sizes != y.sizes:
            raise ValueError(f"its inputs are {x} and {y}; they must not differ")
        return self._layer(Add, x, y, sizes=x.sizes)

    def concat(self) -> _Value:
        """Convert Concat of feature maps by channels."""
        parts = [self._value(position) for position in range(len(self.node.input))]
        if (axis := self.attributes.get("axis")) not in (1, -len(parts[0].sizes)):
            raise ValueError(f"is over axis {axis}; only channels, axis 1, can be put side by side")
        if any(x.sizes[0] != x.shape.c for x in parts):
            raise ValueError("only maps with channels can be put side by side, not flattened ones")
        if len(parts) == 1:
            return parts[0]
        sizes = (sum(x.shape.c for x in parts), *parts[0].sizes[1:])
        return self._layer(Concat, *parts, sizes=sizes)

    def global_mean(self) -> _Value:
        """Convert GlobalAveragePool, over rows and columns."""
        return self._layer(GlobalAvgPool, self._image())

    def mean(self) -> _Value:
        """Convert ReduceMean over rows and columns."""
        axes = self._numbers(1) if self._name(1) else self.attributes.get("axes", [])
        if sorted(axis % 4 for axis in axes) != [2, 3]:
            raise ValueError(f"its axes are {axes}; only [2, 3], rows and columns, are supported")
        y = self.global_mean()
        return y if self.attributes.get("keepdims", 1) else replace(y, sizes=y.sizes[:1])

    def dense(self) -> _Value:
        """Convert Gemm, or MatMul with a constant."""
        x, weights = self._value(), self._weights(1)
        for name, default in (("alpha", 1), ("beta", 1), ("transA", 0)):
            if self.attributes.get(name, default) != default:
                raise ValueError(f"{name} of {self.attributes[name]:g} is not supported")
        is_transposed = bool(self.attributes.get("transB"))
        weights = weights[::-1] if is_transposed else weights
        if len(weights) != 2 or x.sizes != weights[:1]:
            raise ValueError(f"its weights take {list(weights[:-1])}; its input is {x}")
        y = self._layer(partial(Dense, output_channels=weights[1]), x, sizes=weights[1:])

        def in_raster(w: Weights) -> Weights:
            """Reorder weights of inputs that ONNX flattens as (channel, row, column)."""
            c, h, width = x.shape.c, x.shape.h, x.shape.w
            rows = (w.T if is_transposed else w).reshape(c, h, width, -1).transpose(1, 2, 0, 3)
            return rows.reshape(1, 1, x.shape.words, -1)

        self._use_weights(y, 1, in_raster)
        return self._add_bias(y, 2, self._weights(2)) if self._name(2) else y

    def reshape(self) -> _Value:
        """Convert a change of shape that flattens each frame, or that changes nothing."""
        x, sizes = self._value(last=True), self.shapes.get(self.node.output[0], (0,))
        if sizes in ((self.batch, *x.sizes), (self.batch, x.shape.words) + (1,) * (len(sizes) - 2)):
            return replace(x, sizes=sizes[1:])
        size_texts = [str(size or "?") for size in sizes]
        size_texts[:1] = ["batch"] if sizes[:1] == (self.batch,) else size_texts[:1]
        sizes_text = ", ".join(size_texts)
        raise ValueError(
            f"makes [{sizes_text}] of {x}; only flattening to [batch, {x.shape.words}] is supported"
        )

    def softmax(self) -> _Value:
        """Convert a softmax over all classes, which the loss contains."""
        x = self._value()
        axis = self.attributes.get("axis", -1 if self.opset >= 13 else 1)
        place = axis - 1 if axis > 0 else axis + len(x.sizes)
        if place not in range(len(x.sizes)) or axis == 0 or x.sizes[place] != x.shape.words:
            raise ValueError(f"is over axis {axis} of {x}; only over all classes of a frame is supported")
        return replace(x, softmax=True)

    def pass_through(self) -> _Value:
        """Pass the input through without a layer."""
        return self._value(last=True)


AUTO_PAD: dict[bytes, str] = {b"NOTSET": "", b"VALID": "valid", b"SAME_UPPER": "same", b"SAME_LOWER": "same"}
OPERATORS: dict[str, Callable[[_Reader], _Value]] = {
    "Conv": _Reader.conv,
    "Clip": _Reader.clip,
    "Add": _Reader.add,
    "MaxPool": _Reader.max_pool,
    "AveragePool": _Reader.avg_pool,
    "Concat": _Reader.concat,
    "GlobalAveragePool": _Reader.global_mean,
    "ReduceMean": _Reader.mean,
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _Reader.norm),
    **dict.fromkeys(("Gemm", "MatMul"), _Reader.dense),
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze"), _Reader.reshape),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _Reader.softmax),
    **dict.fromkeys(("Dropout", "Identity"), _Reader.pass_through),
}
for _kind in layer_kinds().values():
    if _kind.onnx and _kind.onnx not in OPERATORS:
        OPERATORS[_kind.onnx] = partial(_Reader.convert_equal, kind=_kind)
