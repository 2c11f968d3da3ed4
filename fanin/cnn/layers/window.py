"""Base class of layers with windows that move over a padded input, and helpers for sizes and padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.layers.arithmetic import Float32, Frames, Kernels
from fanin.cnn.layers.layer import Layer, Shape, check_sizes

Pair = tuple[int, int]
Padding = str | int | tuple[int, int, int, int]


def pair(name: str, value: object) -> Pair:
    """Return (vertical, horizontal) from one number or two. Raises ValueError."""
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2:
        raise ValueError(f"{name} must be one number or two, not {value!r}")
    check_sizes(**{name: both[0]})
    check_sizes(**{name: both[1]})
    return both


def find_padding(padding: Padding, shape: Shape, kernel: Pair, stride: Pair) -> tuple[int, int, int, int]:
    """Return (top, left, bottom, right). "same": ⌈size / stride⌉ outputs, odd pixels below and right."""
    if padding == "valid":
        return (0, 0, 0, 0)
    if padding == "same":
        total = [
            max((-(-size // step) - 1) * step + k - size, 0)
            for size, k, step in zip((shape.h, shape.w), kernel, stride, strict=True)
        ]
        top, left = (t // 2 for t in total)
        return (top, left, total[0] - top, total[1] - left)
    sides = 4 * (padding,) if isinstance(padding, int) else padding
    if (
        not isinstance(sides, (tuple, list))
        or len(sides) != 4
        or any(isinstance(side, bool) or not isinstance(side, int) or side < 0 for side in sides)
    ):
        raise ValueError(
            f'padding must be "same", "valid", a number or (top, left, bottom, right), not {padding!r}'
        )
    return (sides[0], sides[1], sides[2], sides[3])


def pixel_fits(width: int, lanes: int, columns: int) -> bool:
    """Return True if ``columns`` memories of ``lanes`` words take ``width`` channels of a column in a cycle.

    ``width`` must divide ``lanes``, or be up to ``columns`` times ``lanes``.
    """
    return lanes % width == 0 or (width % lanes == 0 and width // lanes <= columns)


@dataclass(frozen=True, kw_only=True)
class Window(Layer):
    """Layer with a window of ``kernel`` (rows, columns) that moves by ``stride`` over the padded input."""

    plan_fields: ClassVar[tuple[str, ...]] = ("kernel", "stride", "padding")
    kernel: Pair
    stride: Pair
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  #: top, left, bottom, right

    def check(self) -> None:
        """Raise ValueError if the padded input is smaller than the window."""
        top, left, bottom, right = self.padding
        height, width = self.input.h + top + bottom, self.input.w + left + right
        if self.kernel[0] > height or self.kernel[1] > width:
            window = f"{self.kernel[0]}×{self.kernel[1]}"
            raise ValueError(f"a window of {window} does not fit {height}×{width} (padding included)")

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.input.c

    @cached_property
    def output(self) -> Shape:
        """Shape of the output: positions of the window, by channels."""
        top, left, bottom, right = self.padding
        return Shape(
            (self.input.h + top + bottom - self.kernel[0]) // self.stride[0] + 1,
            (self.input.w + left + right - self.kernel[1]) // self.stride[1] + 1,
            self.channels,
        )

    @property
    def delay(self) -> Fraction:
        """Delay in frames: rows of the first window, one output row being computed, one being sent."""
        rows = min(max(self.kernel[0] - self.padding[0], 1), self.input.h)
        return Fraction(rows, self.input.h) + Fraction(2, self.output.h)

    def pad(self, x: Any) -> Any:
        """Return ``x``, of axes frame, row, column and more, padded with zeros."""
        top, left, bottom, right = self.padding
        return np.pad(x, ((0, 0), (top, bottom), (left, right), *(x.ndim - 3) * ((0, 0),)))

    def crop(self, x: Float32) -> Float32:
        """Return an array without the padding of :meth:`pad`."""
        top, left, *_ = self.padding
        return x[:, top : top + self.input.h, left : left + self.input.w]

    def seen(self, padded: Any, ky: int, kx: int) -> Any:
        """Return a view of each window's value at (ky, kx); axes frame, output row, output column, …"""
        rows, columns = (
            slice(k, k + step * (size - 1) + 1, step)
            for k, step, size in zip((ky, kx), self.stride, (self.output.h, self.output.w), strict=True)
        )
        return padded[:, rows, columns]

    def places(self) -> Iterator[Pair]:
        """Return the places (ky, kx) of a window in raster order."""
        rows, columns = self.kernel
        return product(range(rows), range(columns))

    def spread(self, k: Kernels, count: int, terms: Mapping[Pair, Float32]) -> Frames:
        """Return the fold, for every input, of the terms of all windows that saw it. ``terms``: terms by place.

        ky and kx descend, so that output rows and columns ascend.
        """
        dx = self.pad(np.zeros((count, self.input.h, self.input.w, self.input.c), np.float32))
        for place in reversed(list(self.places())):
            view = self.seen(dx, *place)
            view[...] = k.add(view, terms[place])
        return self.crop(dx)

    def padded64(self, torch: Any, x: Any, value: float = 0.0) -> Any:
        """Return a tensor with channels first, padded with ``value``."""
        top, left, bottom, right = self.padding
        return torch.nn.functional.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom), value=value)

    def onnx_window(self) -> dict[str, Any]:
        """Return the window's attributes in ONNX."""
        return {"kernel_shape": self.kernel, "strides": self.stride, "pads": self.padding}
