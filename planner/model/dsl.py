"""The model language (NADA, listing 1): a function per layer, which takes tensors and returns one.

Sizes are ``[vertical, horizontal, channels]``; a kernel or stride is one number or (vertical, horizontal);
``padding`` is "same" (⌈size / stride⌉ outputs), "valid", a number, or (top, left, bottom, right). Every layer
may have a ``name``. Errors are InputErrors with file, line and layer.

A kind of layer without a function here has the one of :func:`layer_function`, whose keywords are its fields.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from fanin.base.errors import InputError
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.kinds import layer_kinds
from fanin.cnn.layers.layer import Layer, Shape, check_sizes
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.cnn.layers.window import Padding, Window, find_padding, pair
from fanin.planner.model.graph import Builder, kind_of

_current: ContextVar[Builder | None] = ContextVar("model", default=None)


@dataclass(frozen=True)
class Tensor:
    """What a layer makes."""

    builder: Builder
    index: int
    shape: Shape


@contextmanager
def new_model() -> Iterator[Builder]:
    """Collect the layers that the body adds."""
    builder = Builder()
    token = _current.set(builder)
    try:
        yield builder
    finally:
        _current.reset(token)


def _where() -> str:
    """File and line of the model that called."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _add(make: Callable[..., Layer], sources: Sequence[object], name: str | None) -> Tensor:
    where = _where()
    builder = _current.get()
    if builder is None:
        builder = Builder()  # a model file that is run by itself, outside of `fanin plan`
        _current.set(builder)
    indices = []
    for source in sources:
        if not isinstance(source, Tensor):
            raise InputError(
                f"{where}: {name or kind_of(make)}: its source must be a layer's result, not {source!r}"
            )
        if source.builder is not builder:
            raise InputError(f"{where}: {name or kind_of(make)}: its source is a layer of another model")
        indices.append(source.index)
    index = builder.add(make, indices, name=name, where=where)
    return Tensor(builder, index, builder.output(index))


def _window(
    make: type[Window],
    kernel: object,
    stride: object,
    padding: Padding,
    source: Tensor,
    name: str | None,
    **channels: int,
) -> Tensor:
    def build(**fed: object) -> Layer:
        check_sizes(**channels)
        size, step = pair("kernel", kernel), pair("stride", stride)
        sides = find_padding(padding, fed["inputs"][0], size, step)  # type: ignore[index]
        return make(kernel=size, stride=step, padding=sides, **channels, **fed)  # type: ignore[arg-type]

    build.kind = make.kind  # type: ignore[attr-defined]
    return _add(build, [source], name)


def add_input(name: str, shape: Sequence[int]) -> Tensor:
    """Frames ``[vertical, horizontal, channels]``, or labels ``[classes]``."""
    sizes = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    if len(sizes) not in (1, 3):
        raise InputError(f"{_where()}: {name}: a shape is [vertical, horizontal, channels] or [channels]")
    return _add(partial(Input, shape=Shape(*(1, 1, *sizes)[-3:])), [], name)


def add_output(name: str, source: Tensor) -> None:
    """Results for the host."""
    _add(Output, [source], name)


def conv(
    output_channels: int,
    kernel: object,
    stride: object,
    source: Tensor,
    *,
    padding: Padding = "same",
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """Two-dimensional convolution, without bias."""
    return _window(Conv, kernel, stride, padding, source, name, output_channels=output_channels, groups=groups)


def dwconv(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "same", name: str | None = None
) -> Tensor:
    """Depthwise convolution: every channel by itself."""
    channels = source.shape.c if isinstance(source, Tensor) else 1
    return _window(
        DepthwiseConv, kernel, stride, padding, source, name, output_channels=channels, groups=channels
    )


def im2col(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "same", name: str | None = None
) -> Tensor:
    """Every window's words as channels."""
    return _window(Im2col, kernel, stride, padding, source, name)


def max_pool(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "valid", name: str | None = None
) -> Tensor:
    """The largest word of every window."""
    return _window(MaxPool, kernel, stride, padding, source, name)


def avg_pool(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "valid", name: str | None = None
) -> Tensor:
    """The mean of every window."""
    return _window(AvgPool, kernel, stride, padding, source, name)


def global_avg_pool(source: Tensor, *, name: str | None = None) -> Tensor:
    """The mean of every channel."""
    return _add(GlobalAvgPool, [source], name)


def dense(outputs: int, source: Tensor, *, name: str | None = None) -> Tensor:
    """Fully connected, without bias; the source is flattened."""

    def build(**fed: object) -> Layer:
        check_sizes(outputs=outputs)
        return Dense(output_channels=outputs, **fed)  # type: ignore[arg-type]

    build.kind = Dense.kind  # type: ignore[attr-defined]
    return _add(build, [source], name)


def bias(source: Tensor, *, name: str | None = None) -> Tensor:
    """A trained word per channel is added."""
    return _add(Bias, [source], name)


def relu(source: Tensor, *, name: str | None = None) -> Tensor:
    """max(x, 0)."""
    return _add(Relu, [source], name)


def relu6(source: Tensor, *, name: str | None = None) -> Tensor:
    """min(max(x, 0), 6)."""
    return _add(Relu6, [source], name)


def add(first: Tensor, second: Tensor, *, name: str | None = None) -> Tensor:
    """The sum of two feature maps of one shape."""
    return _add(Add, [first, second], name)


def concat(first: Tensor, second: Tensor, *others: Tensor, name: str | None = None) -> Tensor:
    """The channels of feature maps of one height and width, side by side."""
    return _add(Concat, [first, second, *others], name)


def online_norm(
    source: Tensor,
    *,
    forward: float = OnlineNorm.forward_decay,
    backward: float = OnlineNorm.backward_decay,
    name: str | None = None,
) -> Tensor:
    """Online normalisation, by channel.

    ``forward``: the decay of the running mean and variance; ``backward``: that of the control terms.
    """
    make = partial(OnlineNorm, forward_decay=forward, backward_decay=backward)
    return _add(make, [source], name)


def soft_cross_loss(source: Tensor, labels: Tensor, *, name: str | None = None) -> Tensor:
    """Softmax, and the gradient of the cross-entropy with one-hot ``labels``."""
    return _add(SoftCrossLoss, [source, labels], name)


def layer_function(kind: type[Layer]) -> Callable[..., Tensor]:
    """Function of the language that adds a layer of this kind: of its sources, and its fields by name."""

    def function(*sources: Tensor, name: str | None = None, **fields: Any) -> Tensor:
        if len(sources) < 2 if kind.joins else len(sources) != 1:
            wanted = "two sources or more" if kind.joins else "one source"
            raise TypeError(f"{kind.kind}() takes {wanted}, not {len(sources)}")
        return _add(partial(kind, **fields), sources, name)

    function.__name__ = function.__qualname__ = kind.kind
    function.__doc__ = kind.__doc__
    return function


def language() -> Mapping[str, Callable[..., object]]:
    """All functions of the language by name, in the order of the names."""
    here = globals()
    found = {name: here[name] for name in ("add_input", "add_output")}
    for kind, cls in layer_kinds().items():
        if cls.component:  # inputs, outputs and ends of connections have none
            found[kind] = here.get(kind) or layer_function(cls)
    return dict(sorted(found.items()))
