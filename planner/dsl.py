"""The model language (NADA, listing 1): a function per layer, which takes tensors and returns one.

Sizes are ``[vertical, horizontal, channels]``; a kernel or stride is one number or (vertical, horizontal);
``padding`` is "same" (⌈size / stride⌉ outputs), "valid", a number, or (top, left, bottom, right). Every function
takes ``name``. Shape errors are InputErrors with file, line and layer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

from fanin.errors import InputError
from fanin.hdl.layers import ends, pointwise, window
from fanin.hdl.layers.layer import Layer, Shape
from fanin.hdl.layers.window import Padding, check_sizes, find_padding, pair
from fanin.planner.graph import Builder

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
    token = _current.set(Builder())
    try:
        builder = _current.get()
        assert builder is not None
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
    kind = getattr(make, "func", make).kind
    tensors = []
    for source in sources:
        if not isinstance(source, Tensor):
            raise InputError(f"{where}: {name or kind}: its source must be a layer's result, not {source!r}")
        tensors.append(source)
    builder = tensors[0].builder if tensors else _current.get()
    if builder is None:
        builder = Builder()  # a model file that is run by itself, outside of `fanin plan`
        _current.set(builder)
    index = builder.add(make, [tensor.index for tensor in tensors], name=name, where=where)
    return Tensor(builder, index, builder.output(index))


def _sized(kind: str, name: str | None, **sizes: object) -> None:
    try:
        check_sizes(**sizes)
    except ValueError as error:
        raise InputError(f"{_where()}: {name or kind}: {error}") from None


def _window(
    make: type[window.Window], kernel: object, stride: object, padding: Padding, source: Tensor, name: str | None,
    **more: int,
) -> Tensor:  # fmt: skip
    def build(**fed: object) -> Layer:
        size, step = pair("kernel", kernel), pair("stride", stride)
        sides = find_padding(padding, fed["inputs"][0], size, step)  # type: ignore[index]
        return make(kernel=size, stride=step, padding=sides, **more, **fed)  # type: ignore[arg-type]

    build.kind = make.kind  # type: ignore[attr-defined]
    return _add(build, [source], name)


def add_input(name: str, shape: Sequence[int]) -> Tensor:
    """Frames ``[vertical, horizontal, channels]``, or labels ``[classes]``."""
    sizes = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    if len(sizes) not in (1, 3):
        raise InputError(f"{_where()}: {name}: a shape is [vertical, horizontal, channels] or [channels]")
    _sized("input", name, **dict(zip(("vertical", "horizontal", "channels"), sizes, strict=False)))
    return _add(partial(ends.Input, shape=Shape(*(2 * [1] if len(sizes) == 1 else []), *sizes)), [], name)


def add_output(name: str, source: Tensor) -> Tensor:
    """Results for the host."""
    return _add(ends.Output, [source], name)


def conv(
    output_channels: int, kernel: object, stride: object, source: Tensor, *,
    padding: Padding = "same", groups: int = 1, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Two-dimensional convolution, without bias."""
    _sized("conv", name, output_channels=output_channels, groups=groups)
    return _window(
        window.Conv, kernel, stride, padding, source, name, output_channels=output_channels, groups=groups
    )


def dwconv(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "same", name: str | None = None
) -> Tensor:
    """Depthwise convolution: every channel by itself."""
    channels = source.shape.c if isinstance(source, Tensor) else 1
    return _window(
        window.DepthwiseConv, kernel, stride, padding, source, name, output_channels=channels, groups=channels
    )


def im2col(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "same", name: str | None = None
) -> Tensor:
    """Every window's words as channels."""
    return _window(window.Im2col, kernel, stride, padding, source, name)


def avg_pool(
    kernel: object, stride: object, source: Tensor, *, padding: Padding = "valid", name: str | None = None
) -> Tensor:
    """The mean of every window."""
    return _window(window.AvgPool, kernel, stride, padding, source, name)


def global_avg_pool(source: Tensor, *, name: str | None = None) -> Tensor:
    """The mean of every channel."""
    return _add(window.GlobalAvgPool, [source], name)


def dense(outputs: int, source: Tensor, *, name: str | None = None) -> Tensor:
    """Fully connected, without bias; the source is flattened."""
    _sized("dense", name, outputs=outputs)
    return _add(partial(window.Dense, output_channels=outputs), [source], name)


def bias(source: Tensor, *, name: str | None = None) -> Tensor:
    """A trained word per channel is added."""
    return _add(pointwise.Bias, [source], name)


def relu(source: Tensor, *, name: str | None = None) -> Tensor:
    """max(x, 0)."""
    return _add(pointwise.Relu, [source], name)


def relu6(source: Tensor, *, name: str | None = None) -> Tensor:
    """min(max(x, 0), 6)."""
    return _add(pointwise.Relu6, [source], name)


def add(first: Tensor, second: Tensor, *, name: str | None = None) -> Tensor:
    """The sum of two feature maps of one shape."""
    return _add(pointwise.Add, [first, second], name)


def online_norm(source: Tensor, *, name: str | None = None) -> Tensor:
    """Online normalisation, by channel."""
    return _add(pointwise.OnlineNorm, [source], name)


def soft_cross_loss(source: Tensor, labels: Tensor, *, name: str | None = None) -> Tensor:
    """Softmax, and the gradient of the cross-entropy with one-hot ``labels``."""
    return _add(ends.SoftCrossLoss, [source, labels], name)
