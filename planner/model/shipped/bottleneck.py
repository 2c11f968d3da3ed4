"""The bottleneck residual block (NADA, table VI; Sandler et al., CVPR 2018), and networks of it."""

from collections.abc import Iterable
from fractions import Fraction

from fanin.planner.model.dsl import (
    Tensor,
    add,
    add_input,
    add_output,
    bias,
    conv,
    dense,
    dwconv,
    global_avg_pool,
    online_norm,
    relu6,
    soft_cross_loss,
)

#: Consecutive blocks: expansion, output channels, number of blocks, stride of the first.
Group = tuple[Fraction | int, int, int, int]


def normalised(source: Tensor) -> Tensor:
    """Add the layers that follow every convolution: normalisation and bias."""
    return bias(online_norm(source))


def bottleneck(expanded: int, channels: int, stride: int, source: Tensor) -> Tensor:
    """Expand to ``expanded`` channels (unless the source has them), filter each, project to ``channels``.

    The source is added if shapes allow it.
    """
    x = source
    if expanded != source.shape.c:
        x = relu6(normalised(conv(expanded, 1, 1, x)))
    x = relu6(normalised(dwconv(3, stride, x)))
    x = normalised(conv(channels, 1, 1, x))
    return add(source, x) if stride == 1 and source.shape.c == channels else x


def bottlenecks(groups: Iterable[Group], x: Tensor) -> Tensor:
    """Add all blocks of all groups."""
    for expansion, channels, repeats, stride in groups:
        for repeat in range(repeats):
            x = bottleneck(int(expansion * x.shape.c), channels, stride if repeat == 0 else 1, x)
    return x


def mobilenet_v2(side: int, classes: int) -> None:
    """MobileNetV2 with online normalisation, on square images (Sandler et al., table 2; NADA, section V)."""
    groups = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    x = add_input("input", [side, side, 3])
    x = relu6(normalised(conv(32, 3, 2, x)))
    x = bottlenecks(groups, x)
    x = relu6(normalised(conv(1280, 1, 1, x)))
    x = global_avg_pool(x)
    x = bias(dense(classes, x))
    x = soft_cross_loss(x, add_input("label_one_hot", [classes]))
    add_output("output", x)
