"""Where words wait: at joins on the way forward, at forks on the way back."""

from dataclasses import replace

import pytest

from fanin.cnn import Consumer
from fanin.cnn_examples import EXAMPLES
from fanin.cnn_skews import Skew, check_network, default_skews


def test_a_network_without_branches_holds_nothing():
    assert default_skews(EXAMPLES["tiny"]) == {}


def test_the_short_branch_waits_for_the_long_one():
    """The second convolution's delay is two thirds of a frame of 144 words."""
    network = EXAMPLES["residual"]
    names = [stage.name for stage in network.stages]
    conv, add = names.index("conv2"), names.index("add")
    delay = network.stages[conv].layer.delay
    late = int((1 + delay) * 144)
    assert default_skews(network) == {
        Consumer(conv, 0): Skew(backward=144),
        Consumer(add, 0): Skew(forward=144),
        Consumer(add, 1): Skew(forward=late, backward=late),
    }


def test_an_output_of_another_stage_is_refused():
    network = EXAMPLES["tiny"]
    *stages, output = network.stages
    other = replace(network, stages=(*stages, replace(output, sources=(network.loss - 1,))))
    check_network(network)
    with pytest.raises(ValueError, match="output must be the output of the loss, loss"):
        check_network(other)
