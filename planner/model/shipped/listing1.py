"""NADA's listing 1: a small residual CNN for 32×32 images of ten classes."""

from fanin.planner import *


def residual_block(output_channels, stride, source):
    """Add two 3×3 convolutions in parallel with a 1×1 one."""
    x = conv(output_channels, 3, stride, source)
    x = relu(bias(x))
    x = bias(conv(output_channels, 3, 1, x))

    y = conv(output_channels, 1, stride, source)
    y = add(x, y)
    y = relu(y)
    return y


# input name, [vertical, horizontal, channels]
x = add_input("input", [32, 32, 3])
# output_channels, kernel_size, stride, input
x = conv(16, 5, 2, x)
x = relu(bias(x))

x = residual_block(32, 2, x)
x = residual_block(64, 2, x)
x = conv(128, 1, 1, x)

x = global_avg_pool(x)
x = dense(10, x)

ref = add_input("label_one_hot", [10])
x = soft_cross_loss(x, ref)
add_output("output", x)
