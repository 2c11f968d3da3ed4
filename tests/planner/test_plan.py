"""What follows from a placement: draining, updating, and who is to blame for the period; by hand."""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import pytest

from fanin.cnn.flow.link import WIRE_SECONDS
from fanin.cnn.layers.layer import Storage
from fanin.planner import add_input, add_output, concat, conv, dense, global_avg_pool, soft_cross_loss
from fanin.planner.cluster import Cluster, Device, load_cluster
from fanin.planner.model.dsl import new_model
from fanin.planner.plan.plan import Plan, bottleneck
from fanin.planner.search.choices import all_choices
from fanin.planner.search.instance import Instance, Placement

CLOCK = 100_000_000


def plan(*, dram=50 * 10**9, storage=Storage.CHIP, batch=10):
    """Everything on one Arria 10, as slow as can be; the dense layer's 15 weights where ``storage`` says."""
    with new_model() as builder:
        x = global_avg_pool(conv(3, 1, 1, add_input("x", [6, 6, 3])))
        add_output("y", soft_cross_loss(dense(5, x), add_input("labels", [5])))
    model = builder.finish("small", "small.py")
    part = replace(load_cluster("arria10x1").devices[0].part, dram=dram)
    where = defaultdict(lambda: Storage.CHIP, dense=storage)
    choices = [
        next(c for c in reversed(all_choices(n.layer, part)) if c.storage is where[n.layer.kind])
        for n in model.nodes
    ]
    placement = Placement((0,) * len(model.nodes), tuple(choices))
    return Plan(
        Instance(model, Cluster("one", (Device("fpga0", part),))), placement, {}, Fraction(1), batch=batch
    )


def test_a_pool_and_a_loss_wait_for_whole_frames():
    """The drain is not much longer than they, and a frame of the convolution both ways."""
    found = plan()
    assert 299 + 36 * 8 < found.drain * CLOCK < 2 * float(found.period) * CLOCK + 299


def on_two(found, clock):
    """The convolution on a device of its own, of that clock."""
    part = found.instance.cluster.devices[0].part
    devices = Device("fpga0", part), Device("fpga1", replace(part, clock=clock))
    cluster = Cluster("two", devices)
    on = tuple(int(node.layer.kind == "conv") for node in found.model.nodes)
    placement = replace(found.placement, devices=on)
    return replace(found, instance=Instance(found.model, cluster), placement=placement)


def test_devices_apart_drain_later_by_the_links_there_and_slower_clocks_stretch_what_is_theirs():
    """conv1 has images to come and features to send; nobody asks for its gradient."""
    together, apart, slower = plan(), on_two(plan(), CLOCK), on_two(plan(), CLOCK // 2)
    assert together.drain + 3 * WIRE_SECONDS < apart.drain < together.drain + 6 * WIRE_SECONDS
    assert slower.drain > apart.drain + 0.3 * float(apart.period)


def test_an_update_takes_a_cycle_for_every_parameter_of_the_layer_that_learns_last():
    """conv1's 27 weights, 9 for each of 3 channels in and out."""
    parameters = next(node.layer.parameters for node in plan().model.nodes if node.layer.kind == "conv")
    assert plan().update == pytest.approx(parameters / CLOCK, abs=25 / CLOCK)


def test_an_update_is_no_faster_than_dram_moves_two_words_of_a_parameter_each_way():
    assert plan(dram=10**6, storage=Storage.DRAM).update == pytest.approx(15 * 64 / 10**6, rel=0.1)


def test_throughput_with_update_counts_what_is_exposed_once_a_batch():
    found = plan(batch=7)
    assert found.timing.period == pytest.approx(float(found.period))  # nothing holds frames up
    seconds = 7 * float(found.period) + found.timing.exposed
    assert found.throughput_with_update == pytest.approx(7 / seconds)
    assert 0 < found.timing.exposed < found.drain + found.update


def test_what_sets_the_period_is_named():
    assert bottleneck(plan()) == {"device": "fpga0", "resource": "cycles", "layer": "conv1"}  # 3·3·36 cycles
    assert bottleneck(plan(dram=10**6, storage=Storage.DRAM)) == {"device": "fpga0", "resource": "dram_read"}


def test_a_plan_of_what_learns_nothing_drains_until_its_last_result():
    with new_model() as builder:
        x = conv(3, 1, 1, add_input("x", [6, 6, 3]))
        add_output("y", concat(concat(x, x), x))
    model = builder.finish("blind", "blind.py")
    part = load_cluster("arria10x1").devices[0].part
    choices = tuple(all_choices(node.layer, part)[-1] for node in model.nodes)
    placement = Placement((0,) * len(model.nodes), choices)
    found = Plan(Instance(model, Cluster("one", (Device("fpga0", part),))), placement, {}, Fraction(1))
    assert found.update == 0
    assert found.throughput_with_update == pytest.approx(float(found.throughput), rel=0.01)
    assert 50 < found.drain * CLOCK < 250  # rows of a window, and the pipeline
