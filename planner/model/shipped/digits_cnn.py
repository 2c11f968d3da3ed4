"""A small residual CNN for 8×8 images of ten digits; 153,840 multiply–adds per frame forward."""

from fanin.planner import *


def normalised(output_channels, kernel, stride, source):
    """Add a convolution, normalised, with a bias."""
    x = conv(output_channels, kernel, stride, source)
    return bias(online_norm(x, forward=0.99, backward=0.9))


x = add_input("image", [8, 8, 1])
x = relu(normalised(16, 3, 1, x))

y = relu(normalised(24, 3, 2, x))
y = normalised(24, 3, 1, y)
x = relu(add(y, conv(24, 1, 2, x)))

x = global_avg_pool(x)
x = bias(dense(10, x))
x = soft_cross_loss(x, add_input("label", [10]))
add_output("class", x)
