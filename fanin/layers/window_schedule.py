"""How windows without parameters walk over their maps: the schedules of pools, and the rows of im2col."""

from __future__ import annotations

from fanin.layers.layer import Parallelism
from fanin.layers.schedule import Raster, Schedule
from fanin.layers.window import AvgPool, DepthwiseConv, Im2col, MaxPool


def pool_schedule(layer: AvgPool | MaxPool, p: Parallelism) -> Schedule:
    """That of a depthwise convolution with the window and the streams of a pool, ``po`` channels at once."""
    channels = layer.input.c
    convolution = DepthwiseConv(
        inputs=layer.inputs,
        gradient=layer.gradient,
        kernel=layer.kernel,
        stride=layer.stride,
        padding=layer.padding,
        output_channels=channels,
        groups=channels,
    )
    return Schedule(convolution, Parallelism(poc=p.po, pi=p.pi, po=p.po))


def im2col_raster(layer: Im2col, p: Parallelism) -> Raster:
    """The input, as windows see it that are read ``pi`` words at a time."""
    return Raster(
        height=layer.input.h,
        width=layer.input.w,
        groups=layer.input.c // p.pi,
        lanes=p.pi,
        columns=1,
        positions=layer.output.w,
        steps=layer.output.h,
        kernel=layer.kernel,
        stride=layer.stride,
        top=layer.padding[0],
        left=layer.padding[1],
    )
