"""MobileNetV2 at 224×224 with online normalisation (Sandler et al., CVPR 2018; NADA, section V)."""

from fanin.planner import *
from fanin.planner.model.shipped.bottleneck import bottleneck, normalised

# expansion, output channels, how often, stride of the first
GROUPS = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]

x = add_input("input", [224, 224, 3])
x = relu6(normalised(conv(32, 3, 2, x)))
for expansion, channels, repeats, stride in GROUPS:
    for repeat in range(repeats):
        x = bottleneck(expansion * x.shape.c, channels, stride if repeat == 0 else 1, x)
x = relu6(normalised(conv(1280, 1, 1, x)))
x = global_avg_pool(x)
x = bias(dense(1000, x))
x = soft_cross_loss(x, add_input("label_one_hot", [1000]))
add_output("output", x)
