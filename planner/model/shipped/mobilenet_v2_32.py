"""MobileNetV2 for 32×32 images in ten classes: all of its layers, small enough to simulate."""

from fanin.planner.model.shipped.bottleneck import mobilenet_v2

mobilenet_v2(side=32, classes=10)
