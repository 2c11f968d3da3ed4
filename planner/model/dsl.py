"""Model language (NADA, listing 1): a function per layer, which takes tensors and returns one.

Sizes are ``[vertical, horizontal, channels]``. A kernel or stride is one number or (vertical, horizontal).
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
    """Output of a layer, as a value of the language."""

    builder: Builder  #: builder of the layer's model
    index: int  #: index of the layer
    shape: Shape


@contextmanager
def new_model() -> Iterator[Builder]:
    """Yield a builder, which collects the layers that the ``with`` body adds."""
    builder = Builder()
    token = _current.set(builder)
    try:
        yield builder
    finally:
        _current.reset(token)


def _call_location() -> str:
    """Return file and line of the call in the model's file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _add(make: Callable[..., Layer], sources: Sequence[object], name: str | None) -> Tensor:
    """Add a layer to the current model. Return its output. ``make``: as for ``Builder.add``."""
    location = _call_location()
    builder = _current.get()
    if builder is None:
        builder = Builder()  # the model file was run directly, outside of `fanin plan`
        _current.set(builder)
    indices = []
    for source in sources:
        if not isinstance(source, Tensor):
            raise InputError(
                f"{location}: {name or kind_of(make)}: its source must be a layer's result, not {source!r}"
            )
        if source.builder is not builder:
            raise InputError(f"{location}: {name or kind_of(make)}: its source is a layer of another model")
        indices.append(source.index)
    index = builder.add(make, indices, name=name, location=location)
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
    """Add a layer with windows. ``channels``: ``output_channels`` and ``groups`` of a convolution."""

    def build(**inputs: object) -> Layer:
        check_sizes(**channels)
        size, step = pair("kernel", kernel), pair("stride", stride)
        sides = find_padding(padding, inputs["inputs"][0], size, step)  # type: ignore[index]
        return make(kernel=size, stride=step, padding=sides, **channels, **inputs)  # type: ignore[arg-type]

    build.kind = make.kind  # type: ignore[attr-defined]
    return _add(build, [source], name)


def add_input(name: str, shape: Sequence[int]) -> Tensor:
    """Add an input of frames ``[vertical, horizontal, channels]``, or of labels ``[classes]``."""
    sizes = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    if len(sizes) not in (1, 3):
        raise InputError(
            f"{_call_location()}: {name}: a shape is [vertical, horizontal, channels] or [channels]"
        )
    return _add(partial(Input, shape=Shape(*(1, 1, *sizes)[-3:])), [], name)


def add_output(name: str, source: Tensor) -> None:
    """Add an output, whose results go to the host."""
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
    """Add a two-dimensional convolution, without bias."""
    return _window(Conv, kernel, stride, padding, source, name, output_channels=output_channels, groups=groups)


def dwconv(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "same", name: str | None = None
) -> Tensor:
    """Add a depthwise convolution, which filters every channel separately."""
    channels = source.shape.c if isinstance(source, Tensor) else 1
    return _window(
        DepthwiseConv, kernel, stride, padding, source, name, output_channels=channels, groups=channels
    )


def im2col(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "same", name: str | None = None
) -> Tensor:
    """Add a layer that turns the words of every window into channels."""
    return _window(Im2col, kernel, stride, padding, source, name)


def max_pool(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "valid", name: str | None = None
) -> Tensor:
    """Add a maximum over every window."""
    return _window(MaxPool, kernel, stride, padding, source, name)


def avg_pool(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "valid", name: str | None = None
) -> Tensor:
    """Add a mean over every window."""
    return _window(AvgPool, kernel, stride, padding, source, name)


def global_avg_pool(source: Tensor, *, name: str | None = None) -> Tensor:
    """Add a mean over every channel."""
    return _add(GlobalAvgPool, [source], name)


def dense(outputs: int, source: Tensor, *, name: str | None = None) -> Tensor:
    """Add a fully connected layer, without bias; the source is flattened."""

    def build(**inputs: object) -> Layer:
        check_sizes(outputs=outputs)
        return Dense(output_channels=outputs, **inputs)  # type: ignore[arg-type]

    build.kind = Dense.kind  # type: ignore[attr-defined]
    return _add(build, [source], name)


def bias(source: Tensor, *, name: str | None = None) -> Tensor:
    """Add a trained word per channel."""
    return _add(Bias, [source], name)


def relu(source: Tensor, *, name: str | None = None) -> Tensor:
    """Add max(x, 0)."""
    return _add(Relu, [source], name)


def relu6(source: Tensor, *, name: str | None = None) -> Tensor:
    """Add min(max(x, 0), 6)."""
    return _add(Relu6, [source], name)


def add(first: Tensor, second: Tensor, *, name: str | None = None) -> Tensor:
    """Add a sum of two feature maps of the same shape."""
    return _add(Add, [first, second], name)


def concat(first: Tensor, second: Tensor, *others: Tensor, name: str | None = None) -> Tensor:
    """Add a concatenation of the channels of feature maps of the same height and width."""
    return _add(Concat, [first, second, *others], name)


def online_norm(
    source: Tensor,
    *,
    forward: float = OnlineNorm.forward_decay,
    backward: float = OnlineNorm.backward_decay,
    name: str | None = None,
) -> Tensor:
    """Add online normalisation, by channel.

    ``forward``: decay of the running mean and variance. ``backward``: decay of the control terms.
    """
    make = partial(OnlineNorm, forward_decay=forward, backward_decay=backward)
    return _add(make, [source], name)


def soft_cross_loss(source: Tensor, labels: Tensor, *, name: str | None = None) -> Tensor:
    """Add softmax, and the gradient of the cross-entropy with one-hot ``labels``."""
    return _add(SoftCrossLoss, [source, labels], name)


def layer_function(kind: type[Layer]) -> Callable[..., Tensor]:
    """Return a function that adds a layer of this kind to sources, with the kind's fields as keywords."""

    def function(*sources: Tensor, name: str | None = None, **fields: Any) -> Tensor:
        if len(sources) < 2 if kind.joins else len(sources) != 1:
            expected = "two sources or more" if kind.joins else "one source"
            raise TypeError(f"{kind.kind}() takes {expected}, not {len(sources)}")
        return _add(partial(kind, **fields), sources, name)

    function.__name__ = function.__qualname__ = kind.kind
    function.__doc__ = kind.__doc__
    return function


def language() -> Mapping[str, Callable[..., object]]:
    """Return all functions of the language by name, sorted by name."""
    functions = globals()
    language_functions = {name: functions[name] for name in ("add_input", "add_output")}
    for kind, cls in layer_kinds().items():
        if cls.component:  # inputs, outputs and ends of connections have none
            language_functions[kind] = functions.get(kind) or layer_function(cls)
    return dict(sorted(language_functions.items()))
