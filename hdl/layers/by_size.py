"""Layers by their sizes: components that ``fanin verilog`` builds from a kind of layer and some numbers."""

from __future__ import annotations

from amaranth.lib import wiring

from fanin.cnn.facts import Stage
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Layer, Parallelism, Shape, check_sizes
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.hdl.layers.components import component_of

_MAP = {"height": 8, "width": 8, "channels": 4}
_WINDOW = {"kernel": 3, "stride": 1, "padding": 1}
#: Sizes of each kind of layer, with their defaults.
SIZES: dict[str, dict[str, int]] = {
    "convolution": _MAP
    | {"output_channels": 8, **_WINDOW, "groups": 1, "pic": 2, "poc": 2, "ph": 2, "gradient": 1},
    "depthwise-convolution": _MAP | {**_WINDOW, "poc": 2, "ph": 2, "gradient": 1},
    "dense": {"inputs": 64, "outputs": 10, "pic": 4, "poc": 2, "gradient": 1},
    "online-norm": _MAP | {"lanes": 2, "gradient": 1},
    "softmax-loss": {"classes": 10, "lanes": 1},
}


def make(name: str, **sizes: int) -> wiring.Component:
    """Return a component of :data:`SIZES`. Raises ValueError for sizes that the layer cannot have."""
    gradient = sizes.pop("gradient", 1)
    if gradient not in (0, 1):
        raise ValueError(f"gradient must be 0 or 1, not {gradient}")
    padding = sizes.pop("padding", 0)
    if padding < 0:
        raise ValueError(f"padding must be at least 0, not {padding}")
    check_sizes(**sizes)
    layer, p = _LAYERS[name](sizes | {"padding": padding}, bool(gradient))
    _check(layer, p)
    return component_of(Stage(name, layer, p))


def _map(sizes: dict[str, int]) -> Shape:
    return Shape(sizes["height"], sizes["width"], sizes["channels"])


def _window(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    repetitions = {"kernel": 2, "stride": 2, "padding": 4}
    return {name: times * (sizes[name],) for name, times in repetitions.items()}


def _convolution(sizes: dict[str, int], gradient: bool) -> tuple[Layer, Parallelism]:
    layer = Conv(
        inputs=(_map(sizes),),
        gradient=gradient,
        output_channels=sizes["output_channels"],
        groups=sizes["groups"],
        **_window(sizes),  # type: ignore[arg-type]
    )
    return layer, layer.with_streams(Parallelism(pic=sizes["pic"], poc=sizes["poc"], ph=sizes["ph"]))


def _depthwise(sizes: dict[str, int], gradient: bool) -> tuple[Layer, Parallelism]:
    channels = sizes["channels"]
    layer = DepthwiseConv(
        inputs=(_map(sizes),),
        gradient=gradient,
        output_channels=channels,
        groups=channels,
        **_window(sizes),  # type: ignore[arg-type]
    )
    return layer, layer.with_streams(Parallelism(poc=sizes["poc"], ph=sizes["ph"]))


def _dense(sizes: dict[str, int], gradient: bool) -> tuple[Layer, Parallelism]:
    inputs = (Shape(1, 1, sizes["inputs"]),)
    layer = Dense(inputs=inputs, gradient=gradient, output_channels=sizes["outputs"])
    return layer, layer.with_streams(Parallelism(pic=sizes["pic"], poc=sizes["poc"]))


def _online_norm(sizes: dict[str, int], gradient: bool) -> tuple[Layer, Parallelism]:
    lanes = sizes["lanes"]
    return OnlineNorm(inputs=(_map(sizes),), gradient=gradient), Parallelism(pi=lanes, po=lanes)


def _softmax_loss(sizes: dict[str, int], gradient: bool) -> tuple[Layer, Parallelism]:
    lanes = sizes["lanes"]
    shapes = 2 * (Shape(1, 1, sizes["classes"]),)
    return SoftCrossLoss(inputs=shapes, gradient=gradient), Parallelism(pi=lanes, po=lanes)


_LAYERS = {
    "convolution": _convolution,
    "depthwise-convolution": _depthwise,
    "dense": _dense,
    "online-norm": _online_norm,
    "softmax-loss": _softmax_loss,
}


def _check(layer: Layer, p: Parallelism) -> None:
    if p not in layer.parallelisms():
        raise ValueError(f"{layer.kind} cannot be built with {p}: each divides its channels or columns")
