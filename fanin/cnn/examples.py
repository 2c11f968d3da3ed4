"""Small networks for the catalogue of designs, for trials and for tests."""

from __future__ import annotations

from collections.abc import Callable

from fanin.cnn.facts import Network, Stage
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Layer, Parallelism, Shape, Storage
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss

_IMAGE = Shape(6, 6, 2)
_CLASSES = Shape(1, 1, 3)
_CHANNELS = 4


class _Builder:
    """Builder of a network, stage by stage. Stage 0 has the images, stage 1 (``labels``) the labels.

    ``sources`` and ``source`` are indices of stages. Methods return the index of the stage that they add.
    """

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.add("images", Input(shape=_IMAGE), Parallelism(po=2))
        self.labels = self.add("labels", Input(shape=_CLASSES), Parallelism(po=3))

    def add(self, name: str, layer: Layer, parallelism: Parallelism, *sources: int) -> int:
        """Add a stage with its parameters, if any, on chip."""
        self.stages.append(Stage(name, layer, parallelism, sources))
        return len(self.stages) - 1

    def add_layer(self, name: str, make: Callable[..., Layer], lanes: int, *sources: int) -> int:
        """Add a layer whose input and output transfers have ``lanes`` words.

        - ``make``: class of the layer, called with ``inputs`` and ``gradient``.

        The layer sends gradients to its inputs, so the images must not be among ``sources``: they take none.
        """
        inputs = tuple(self.stages[source].layer.output for source in sources)
        return self.add(name, make(inputs=inputs, gradient=True), Parallelism(pi=lanes, po=lanes), *sources)

    def add_conv(self, name: str, source: int, parallelism: Parallelism) -> int:
        """Add a 3×3 convolution whose output has as many rows and columns as its input.

        The layer sends gradients to ``source``, except to the images, which take none.
        """
        shape, has_upstream = self.stages[source].layer.output, source != 0
        layer = Conv(
            inputs=(shape,),
            kernel=(3, 3),
            stride=(1, 1),
            padding=(1, 1, 1, 1),
            output_channels=_CHANNELS,
            gradient=has_upstream,
        )
        return self.add(name, layer, layer.with_streams(parallelism), source)

    def add_dense_in_dram(self, name: str, outputs: int, parallelism: Parallelism, source: int) -> int:
        """Add a dense layer of ``outputs`` words, with its parameters in DRAM.

        The layer sends gradients to ``source``, except to the images, which take none.
        """
        shape, has_upstream = self.stages[source].layer.output, source != 0
        layer = Dense(inputs=(shape,), output_channels=outputs, gradient=has_upstream)
        self.stages.append(Stage(name, layer, layer.with_streams(parallelism), (source,), Storage.DRAM))
        return len(self.stages) - 1

    def add_window(
        self,
        name: str,
        make: Callable[..., Layer],
        size: int,
        padding: tuple[int, int, int, int],
        parallelism: Parallelism,
        source: int,
    ) -> int:
        """Add a layer with windows of ``size`` × ``size`` and stride 2.

        ``padding``: rows and columns at top, left, bottom and right.
        """
        shape = self.stages[source].layer.output
        layer = make(inputs=(shape,), gradient=True, kernel=(size, size), stride=(2, 2), padding=padding)
        return self.add(name, layer, parallelism, source)

    def finish(self, name: str, source: int) -> Network:
        """Add pooling, a dense layer, bias, loss and output after ``source``. Return the network."""
        pool = self.add_layer("pool", GlobalAvgPool, 2, source)
        layer = Dense(inputs=(self.stages[pool].layer.output,), output_channels=_CLASSES.c, gradient=True)
        dense = self.add("dense", layer, layer.with_streams(Parallelism(pic=2)), pool)
        bias = self.add_layer("dense_bias", Bias, 3, dense)
        loss = self.add_layer("loss", SoftCrossLoss, 3, bias, self.labels)
        self.add_layer("output", Output, 1, loss)
        return Network(name, tuple(self.stages))


def _tiny() -> Network:
    """Return a network with one convolution."""
    b = _Builder()
    bias = b.add_layer("bias", Bias, 2, b.add_conv("conv", 0, Parallelism(pic=2, poc=2, ph=2)))
    return b.finish("tiny", b.add_layer("relu", Relu, 4, bias))


def _residual() -> Network:
    """Return a network with a residual block: two convolutions with online normalisation, and an addition."""
    b = _Builder()
    first = b.add_layer("norm1", OnlineNorm, 2, b.add_conv("conv1", 0, Parallelism(pic=1, poc=2, ph=3)))
    relu = b.add_layer("relu1", Relu, 4, first)
    second = b.add_layer("norm2", OnlineNorm, 2, b.add_conv("conv2", relu, Parallelism(pic=2, poc=4, ph=2)))
    total = b.add_layer("add", Add, 4, second, relu)
    return b.finish("residual", b.add_layer("relu2", Relu, 2, total))


def _pools() -> Network:
    """Return a network with a convolution, two parallel pools, and a convolution through im2col."""
    b = _Builder()
    relu = b.add_layer("relu", Relu6, 2, b.add_conv("conv1", 0, Parallelism(pic=2, poc=2, ph=2)))
    largest = b.add_window("max_pool", MaxPool, 3, (1, 1, 0, 0), Parallelism(pi=2, po=2), relu)
    mean = b.add_window("avg_pool", AvgPool, 2, (0, 0, 0, 0), Parallelism(pi=4, po=4), relu)
    concatenated = b.add_layer("concat", Concat, 2, largest, mean)
    windows = b.add_window("im2col", Im2col, 2, (0, 0, 1, 1), Parallelism(pi=4, po=8), concatenated)
    layer = Conv(
        inputs=(b.stages[windows].layer.output,),
        kernel=(1, 1),
        stride=(1, 1),
        output_channels=_CHANNELS,
        gradient=True,
    )
    conv = b.add("conv2", layer, layer.with_streams(Parallelism(pic=4, poc=4)), windows)
    return b.finish("pools", b.add_layer("bias", Bias, 4, conv))


def _streamed() -> Network:
    """Return a network of three dense layers with parameters in DRAM.

    The first sends no gradient back, the second works on two frames at a time.
    """
    b = _Builder()
    hidden = b.add_layer("relu", Relu, 2, b.add_dense_in_dram("hidden", 24, Parallelism(pic=2, poc=3), 0))
    second = b.add_layer(
        "relu2", Relu, 2, b.add_dense_in_dram("second", 20, Parallelism(pic=2, poc=2, frames=2), hidden)
    )
    bias = b.add_layer("bias", Bias, 3, b.add_dense_in_dram("dense", _CLASSES.c, Parallelism(pic=2), second))
    loss = b.add_layer("loss", SoftCrossLoss, 3, bias, b.labels)
    b.add_layer("output", Output, 1, loss)
    return Network("streamed", tuple(b.stages))


EXAMPLES = {network.name: network for network in (_tiny(), _residual(), _pools(), _streamed())}
