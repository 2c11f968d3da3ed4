"""NADA's example CNN (tables V and VI), for ImageNet."""

from fractions import Fraction

from fanin.planner import *
from fanin.planner.model.shipped.bottleneck import Group, bottlenecks, normalised

GROUPS: list[Group] = [
    (Fraction(32, 27), 16, 1, 1),
    (4, 16, 1, 2),
    (6, 24, 2, 2),
    (6, 48, 2, 2),
    (6, 64, 2, 1),
    (6, 128, 1, 2),
    (6, 256, 1, 1),
]

x = add_input("input", [224, 224, 3])
x = im2col(3, 2, x)
x = bottlenecks(GROUPS, x)
x = normalised(conv(1024, 1, 1, x))
x = avg_pool(7, 7, x)
x = bias(dense(1000, x))
x = soft_cross_loss(x, add_input("label_one_hot", [1000]))
add_output("output", x)
