"""Layers of every kind, with parallelisms whose trees are odd and even, and words that arithmetic trips on."""

import numpy as np

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
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from tests.fanin.cnn.layers.small import other_layers
from tests.fp32_values import SPECIAL

MAP = Shape(5, 6, 6)
FRAMES = 2


def _conv(kernel, stride, padding, oc, groups=1, shape=MAP, gradient=True):
    return Conv(
        inputs=(shape,),
        kernel=kernel,
        stride=stride,
        padding=padding,
        output_channels=oc,
        groups=groups,
        gradient=gradient,
    )


def _window(kind, kernel, stride, padding=(0, 0, 0, 0)):
    return kind(inputs=(MAP,), kernel=kernel, stride=stride, padding=padding, gradient=True)


CASES = {
    "conv": (_conv((3, 3), (1, 1), (1, 1, 1, 1), 4), Parallelism(pic=3, poc=2, ph=3)),
    "conv_strides": (_conv((3, 2), (2, 3), (1, 0, 2, 1), 10), Parallelism(pic=6, poc=5, ph=1)),
    "conv_groups": (
        _conv((2, 3), (1, 2), (0, 1, 0, 0), 12, groups=2, shape=Shape(4, 6, 8)),
        Parallelism(pic=2, poc=3, ph=3),
    ),
    "conv_wide_stride": (_conv((1, 1), (2, 2), (0, 0, 0, 0), 7), Parallelism(pic=2, poc=7, ph=3)),
    "conv_first": (
        _conv((3, 3), (1, 1), (1, 1, 1, 1), 5, shape=Shape(5, 5, 1), gradient=False),
        Parallelism(ph=5),
    ),
    "dwconv": (
        DepthwiseConv(
            inputs=(MAP,),
            kernel=(3, 3),
            stride=(2, 1),
            padding=(1, 1, 1, 1),
            output_channels=6,
            groups=6,
            gradient=True,
        ),
        Parallelism(poc=3, ph=2),
    ),
    "dense": (Dense(inputs=(Shape(2, 3, 5),), output_channels=9, gradient=True), Parallelism(pic=5, poc=3)),
    "bias": (Bias(inputs=(MAP,), gradient=True), Parallelism()),
    "bias_first": (Bias(inputs=(MAP,)), Parallelism()),
    "relu": (Relu(inputs=(MAP,), gradient=True), Parallelism()),
    "relu6": (Relu6(inputs=(MAP,), gradient=True), Parallelism()),
    "add": (Add(inputs=(MAP, MAP), gradient=True), Parallelism()),
    "concat": (Concat(inputs=(MAP, Shape(5, 6, 3), Shape(5, 6, 1)), gradient=True), Parallelism()),
    "max_pool": (_window(MaxPool, (3, 3), (2, 2), (1, 1, 0, 0)), Parallelism()),
    "max_pool_apart": (_window(MaxPool, (2, 2), (2, 3)), Parallelism()),
    "avg_pool": (_window(AvgPool, (3, 2), (1, 2), (1, 1, 1, 0)), Parallelism()),
    "im2col": (_window(Im2col, (3, 3), (2, 1), (1, 1, 1, 1)), Parallelism()),
    "global_avg_pool": (GlobalAvgPool(inputs=(MAP,), gradient=True), Parallelism()),
    "online_norm": (
        OnlineNorm(inputs=(MAP,), forward_decay=0.9, backward_decay=0.8, gradient=True),
        Parallelism(),
    ),
    "soft_cross_loss": (SoftCrossLoss(inputs=2 * (Shape(1, 1, 7),), gradient=True), Parallelism()),
    "input": (Input(shape=MAP), Parallelism()),
    "output": (Output(inputs=(MAP,), gradient=True), Parallelism()),
}
_OTHERS = other_layers([layer for layer, _ in CASES.values()], MAP)
CASES |= {kind: (layer, Parallelism()) for kind, layer in _OTHERS.items()}


def words(rng, shape, special=0.0):
    """Normal deviates, of which a share is words on which arithmetic goes wrong."""
    drawn = rng.standard_normal(shape).astype(np.float32)
    odd = np.array(rng.choice(SPECIAL, shape), np.uint32).view(np.float32)
    return np.where(rng.random(shape) < special, odd, drawn)


def inputs(rng, layer, frames=FRAMES, special=0.0):
    shapes = layer.inputs or (layer.output,)
    return [words(rng, (frames, shape.h, shape.w, shape.c), special) for shape in shapes]


def gradient(rng, layer, frames=FRAMES, special=0.0):
    return words(rng, (frames, layer.output.h, layer.output.w, layer.output.c), special)


def state(rng, layer, special=0.0):
    """Of a layer in the midst of its training; 1/σ and the variance are above 0."""
    found = layer.zero_state()
    for name, zeros in found.items():
        drawn = words(rng, zeros.shape, special)
        found[name] = np.abs(drawn) if name in ("scale", "variance") else drawn
    return found
