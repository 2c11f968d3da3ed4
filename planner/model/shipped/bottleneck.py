"""The bottleneck residual block (NADA, table VI; Sandler et al., CVPR 2018)."""

from fanin.planner.model.dsl import Tensor, add, bias, conv, dwconv, online_norm, relu6


def normalised(source: Tensor) -> Tensor:
    """What follows every convolution: normalisation and bias."""
    return bias(online_norm(source))


def bottleneck(expanded: int, channels: int, stride: int, source: Tensor) -> Tensor:
    """Expand to ``expanded`` channels (none when it has them), filter each, project to ``channels``.

    The source is added where shapes allow it.
    """
    x = source
    if expanded != source.shape.c:
        x = relu6(normalised(conv(expanded, 1, 1, x)))
    x = relu6(normalised(dwconv(3, stride, x)))
    x = normalised(conv(channels, 1, 1, x))
    return add(source, x) if stride == 1 and source.shape.c == channels else x
