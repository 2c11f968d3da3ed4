"""Small networks to train, built without a plan."""

from fanin.cnn.facts import Network, Stage
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss

CLASSES = Shape(1, 1, 10)


class Builder:
    """Stages one by one; ``add`` gives a layer its inputs, and the gradient that it needs."""

    def __init__(self):
        self.stages = []

    def add(self, make, *sources, parallelism=Parallelism(), **fields):  # noqa: B008
        feeding = [self.stages[source].layer for source in sources]
        if feeding:
            fields |= {
                "inputs": tuple(layer.output for layer in feeding),
                "gradient": any(layer.trains for layer in feeding),
            }
        layer = make(**fields)
        self.stages.append(Stage(f"{layer.kind}{len(self.stages)}", layer, parallelism, sources))
        return len(self.stages) - 1

    def conv(self, source, channels, kernel, stride, **lanes):
        pad = kernel // 2
        return self.add(
            Conv,
            source,
            parallelism=Parallelism(**lanes),
            kernel=(kernel, kernel),
            stride=(stride, stride),
            padding=4 * (pad,),
            output_channels=channels,
        )

    def normalised(self, source, channels, kernel, stride, **lanes):
        x = self.conv(source, channels, kernel, stride, **lanes)
        return self.add(Bias, self.add(OnlineNorm, x, forward_decay=0.99, backward_decay=0.9))


def residual(image=Shape(8, 8, 1), first=8, second=12):  # noqa: B008
    """Two joins, a fork of two and one of three, online normalisation."""
    b = Builder()
    x = b.add(Input, shape=image)
    x = b.add(Relu, b.normalised(x, first, 3, 1, ph=2, poc=4))
    y = b.add(Relu, b.normalised(x, second, 3, 2, pic=4, poc=3, ph=2))
    y = b.normalised(y, second, 3, 1, pic=3, poc=2, ph=2)
    z = b.conv(x, second, 1, 2, pic=2, ph=2)
    x = b.add(Relu, b.add(Add, y, z))
    y = b.normalised(x, second, 1, 1, pic=6)
    x = b.add(Add, b.add(Add, y, x), x)
    x = b.add(GlobalAvgPool, x)
    x = b.add(Bias, b.add(Dense, x, parallelism=Parallelism(pic=3, poc=5), output_channels=10))
    labels = b.add(Input, shape=CLASSES)
    x = b.add(SoftCrossLoss, x, labels)
    b.add(Output, x)
    return Network("residual", tuple(b.stages))
