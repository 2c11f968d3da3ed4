"""What follows from a placement: draining, updating, and who is to blame for the period; by hand."""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import pytest

from fanin.layers.layer import Storage
from fanin.planner import add_input, add_output, conv, dense, global_avg_pool, soft_cross_loss
from fanin.planner.cluster import Cluster, Device, load_cluster
from fanin.planner.model.dsl import new_model
from fanin.planner.plan.plan import Plan, bottleneck
from fanin.planner.search.choices import all_choices
from fanin.planner.search.instance import Instance, Placement


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


def test_a_pipeline_drains_in_twice_the_delays_of_its_longest_way():
    # conv: a row of 6 and two rows of output, 3/6; pool 1; dense: its row and two more, 3; loss 1
    found = plan()
    assert found.drain == pytest.approx(2 * (Fraction(3, 6) + 1 + 3 + 1) * found.period)


def test_an_update_takes_a_cycle_for_every_parameter_of_the_largest_layer():
    assert plan().update == pytest.approx(15 / 100e6)


def test_an_update_is_no_faster_than_dram_moves_two_words_of_a_parameter_each_way():
    assert plan(dram=10**6, storage=Storage.DRAM).update == pytest.approx(15 * 64 / 10**6)
    assert plan(dram=50 * 10**9, storage=Storage.DRAM).update == pytest.approx(15 / 100e6)


def test_throughput_with_update_counts_both_once_a_batch():
    found = plan(batch=7)
    assert found.throughput_with_update == pytest.approx(
        7 / (7 * float(found.period) + found.drain + found.update)
    )
    assert found.throughput_with_update < found.throughput


def test_what_sets_the_period_is_named():
    assert bottleneck(plan()) == {"device": "fpga0", "resource": "cycles", "layer": "conv1"}  # 3·3·36 cycles
    assert bottleneck(plan(dram=10**6, storage=Storage.DRAM)) == {"device": "fpga0", "resource": "dram_read"}
