# amaranth: UnusedElaboratable=no
"""The flow model's room and cycles are those of the components that it stands for."""

import pytest

from fanin.cnn.flow import node, parts
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.latencies import LINES, PLACES
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.schedule import Way, tree_latency
from fanin.hdl.layers.forward import Forward
from fanin.hdl.layers.input_gradient import InputGradient
from fanin.hdl.layers.parameter_walk import ARITHMETIC_LATENCY
from fanin.sim.cosim.run import MEMORY_LATENCY


def test_constants_are_those_of_the_hardware():
    """Latencies that the flow model states itself; all others are one constant of ``fanin.cnn.layers``."""
    assert parts.MEMORY_LATENCY == MEMORY_LATENCY
    assert node.UPDATE_LATENCY == ARITHMETIC_LATENCY + 3  # at up to eight lanes


@pytest.mark.parametrize("p", [Parallelism(pic=2, poc=4, ph=3), Parallelism(pic=4, poc=1, ph=1)])
def test_a_convolution_takes_its_latencies(p):
    """From a row to the first result: 3 cycles until a step of which one is the block's beginning."""
    layer = Conv(
        inputs=(Shape(6, 6, 4),),
        gradient=True,
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1, 1, 1),
        output_channels=4,
    )
    p = layer.with_streams(p)
    schedule = layer.schedule(p)
    steps, sums = parts.block_steps(schedule, Way.FORWARD), parts.forward_latency(schedule)
    first = parts.ROW_WRITTEN + steps + sums + parts.RESULT_ROW_LATENCY + parts.READER_LATENCY
    assert first == Forward(schedule=schedule).latency
    terms = LINES + tree_latency(schedule.lanes_out)
    back = terms - PLACES + parts.GRADIENT_ROW_LATENCY + parts.READER_LATENCY
    assert back == InputGradient(schedule=schedule).latency
