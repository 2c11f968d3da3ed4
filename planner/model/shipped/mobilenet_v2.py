"""MobileNetV2 at 224×224, for ImageNet."""

from fanin.planner.model.shipped.bottleneck import mobilenet_v2

mobilenet_v2(side=224, classes=1000)
