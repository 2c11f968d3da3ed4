"""Why there is no plan, in one line."""

import re
from dataclasses import replace

import pytest

from fanin.base.errors import InputError
from fanin.planner.cluster import Cluster, Device, load_cluster
from fanin.planner.model import dsl
from fanin.planner.plan.plan import make_plan
from fanin.planner.search.conflict import describe_conflict, misfit, smallest_conflict
from fanin.planner.search.instance import Instance
from fanin.planner.search.limits import Limits
from tests.planner.exhaustive import Exhaustive, random_case, smallest_conflicts, two_ways

PART = load_cluster("arria10x1").devices[0].part
BLOCKS = replace(PART, family=replace(PART.family, registers_below=1), ram_blocks=(3,))  # for all memories


def _model():
    with dsl.new_model() as builder:
        source = dsl.relu(dsl.add_input("in", [8, 8, 4]))
        dsl.add_output("out", dsl.conv(16, 3, 1, source, name="big"))
        return builder.finish("model", "model.py")


def _instance(*parts, model=None):
    devices = tuple(Device(f"fpga{n}", part) for n, part in enumerate(parts))
    return Instance(model or _model(), Cluster("cluster", devices))


# Two ways of 1 multiplier each, forward and for the weights' gradient, and 2 for the update.
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([replace(PART, dsp=1), replace(PART, dsp=3)], "4 DSPs of the 3 of fpga1"),
        ([replace(PART, dsp=3), replace(PART, dsp=1)], "4 DSPs of the 3 of fpga0"),
        ([BLOCKS], r"[0-9,]+ m20k blocks of the 3 of fpga0"),
        ([replace(PART, ram_bits=50_000, ram_blocks=None)], r"[0-9,]+ bits of RAM of the 50,000 of fpga0"),
        ([replace(PART, dram=0)], r"16,384 bits a frame to and from DRAM of the 0 of fpga0"),
    ],
)
def test_a_layer_that_fits_no_device_is_named_with_resource_amount_and_closest_device(parts, said):
    with pytest.raises(InputError) as raised:
        make_plan(_instance(*parts), Limits(seconds=5, workers=1))
    assert re.fullmatch(f"big fits no device: at least, it takes {said}, the closest", str(raised.value))


def test_the_least_amount_is_named():
    part = replace(PART, ram_bits=50_000, ram_blocks=None)
    layer = _model().nodes[2].layer
    ways = [layer.cost(p, s, part.family).ram_bits for p, s in layer.builds()]
    assert f"takes {min(ways):,} bits" in misfit(_instance(part))


def test_a_layer_of_the_hosts_is_held_against_the_hosts_device_alone():
    with dsl.new_model() as builder:
        dsl.add_output("out", dsl.conv(4, 1, 1, dsl.add_input("in", [4, 4, 4]), name="first"))
        model = builder.finish("model", "model.py")
    said = misfit(_instance(replace(PART, dsp=0), PART, model=model))
    assert said == "first fits no device (the host's): at least, it takes 4 DSPs of the 0 of fpga0, the closest"
    assert misfit(_instance(PART, replace(PART, dsp=0), model=model)) is None


@pytest.mark.slow
def test_the_smallest_set_of_rules_that_no_placement_keeps_is_found():
    sizes = set()
    for seed in range(130):
        model, cluster = random_case(seed, 4)
        if len(cluster.devices) ** len(model.nodes) > 3**7:
            continue
        instance = Instance(model, cluster)
        if Exhaustive(model, cluster).best() is not None or misfit(instance):
            continue
        rules = smallest_conflict(instance)
        assert rules in smallest_conflicts(model, cluster), seed
        said = describe_conflict(instance, rules)
        assert said.startswith("no placement at any throughput; ")
        assert said.isprintable()  # in one line
        assert said.count(";") == len(rules)
        sizes.add(len(rules))
    assert sizes >= {1, 2, 3}


def test_a_plan_that_cannot_be_says_which_rules_conflict():
    model, cluster = two_ways(connections=2, dsp=0)
    with pytest.raises(
        InputError, match=r"these cannot be kept together: at most 2/4 connections a device, each"
    ):
        make_plan(Instance(model, cluster), Limits(seconds=5, workers=1))


def test_a_layer_left_out_for_one_rule_is_no_conflict_of_the_others():
    """The layer needs the second device's DSPs, and that device has no network: all of it conflicts."""
    parts = (replace(PART, dsp=0), replace(PART, network=0))
    assert smallest_conflict(_instance(*parts)) == ("dsp", "host", "network")
