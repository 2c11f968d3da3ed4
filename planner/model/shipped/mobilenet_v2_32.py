"""MobileNetV2 on images of 32×32 in ten classes: all of its layers, small enough to be simulated."""

from fanin.planner.model.shipped.bottleneck import mobilenet_v2

mobilenet_v2(side=32, classes=10)
