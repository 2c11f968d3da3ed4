"""Base class of layers whose windows move over a padded input, and checks of window sizes and padding."""

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
    """Return (vertical, horizontal) from one number or two.

    Raises ValueError with ``name`` for other values.
    """
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(sizes) != 2:
        raise ValueError(f"{name} must be one number or two, not {value!r}")
    check_sizes(**{name: sizes[0]})
    check_sizes(**{name: sizes[1]})
    return sizes


def find_padding(padding: Padding, shape: Shape, kernel: Pair, stride: Pair) -> tuple[int, int, int, int]:
    """Return (top, left, bottom, right) of ``padding``. Raises ValueError for an invalid one.

    "same" gives ⌈size / stride⌉ outputs; an odd pixel of padding is at the bottom or right.
    """
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
    """Return True if ``columns`` memories of ``lanes`` words can access ``width`` channels of a column at once.

    ``width`` must divide ``lanes``, or be up to ``columns`` times ``lanes``.
    """
    return lanes % width == 0 or (width % lanes == 0 and width // lanes <= columns)


@dataclass(frozen=True, kw_only=True)
class Window(Layer):
    """Layer whose window moves over the padded input."""

    plan_fields: ClassVar[tuple[str, ...]] = ("kernel", "stride", "padding")
    kernel: Pair  #: rows and columns of the window
    stride: Pair  #: rows and columns from window to window
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

    def window_view(self, padded: Any, ky: int, kx: int) -> Any:
        """Return a view of the word at (ky, kx) of every window; axes frame, output row, output column, …

        ``padded``: array from :meth:`pad`.
        """
        rows, columns = (
            slice(k, k + step * (size - 1) + 1, step)
            for k, step, size in zip((ky, kx), self.stride, (self.output.h, self.output.w), strict=True)
        )
        return padded[:, rows, columns]

    def taps(self) -> Iterator[Pair]:
        """Return the window's taps (ky, kx) in raster order."""
        rows, columns = self.kernel
        return product(range(rows), range(columns))

    def scatter_add(self, kernels: Kernels, count: int, terms_by_tap: Mapping[Pair, Float32]) -> Frames:
        """Return the input gradient of ``count`` frames: each input's fold over the windows that read it.

        ``terms_by_tap``: for each tap, the terms of all windows.
        The taps descend, so that the output rows and columns of an input's terms ascend.
        """
        gradient = self.pad(np.zeros((count, self.input.h, self.input.w, self.input.c), np.float32))
        for tap in reversed(list(self.taps())):
            view = self.window_view(gradient, *tap)
            view[...] = kernels.add(view, terms_by_tap[tap])
        return self.crop(gradient)

    def padded64(self, torch: Any, x: Any, value: float = 0.0) -> Any:
        """Return a tensor with channels first, padded with ``value``."""
        top, left, bottom, right = self.padding
        return torch.nn.functional.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom), value=value)

    def onnx_window(self) -> dict[str, Any]:
        """Return the window's attributes in ONNX."""
        return {"kernel_shape": self.kernel, "strides": self.stride, "pads": self.padding}
