"""Model parallelism: the parts of a group compute what the whole computes, with the same parameters."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.planner.cluster import load_cluster
from fanin.planner.model import dsl
from fanin.planner.model.load import load_model
from fanin.planner.model.split import LARGE_SHARE, bottlenecks, limiting_groups, split
from fanin.planner.search.instance import Instance
from fanin.planner.search.relax import period_bound

EPSILON = 1e-3


def _bottlenecks(groups=1, channels=4, wide=8):
    """Expansion, depthwise and projection with their biases and norms, ``groups`` times, with short cuts."""
    with dsl.new_model() as builder:
        last = dsl.conv(channels, 3, 1, dsl.add_input("in", [6, 6, 3]), name="stem")
        for g in range(groups):
            begin = last
            last = dsl.bias(dsl.conv(wide, 1, 1, last, name=f"expand{g}"), name=f"bias{g}")
            last = dsl.relu6(dsl.online_norm(last, name=f"norm{g}"), name=f"clip{g}")
            last = dsl.relu(dsl.dwconv(3, 1, last, name=f"depth{g}"), name=f"relu{g}")
            last = dsl.bias(dsl.conv(channels, 1, 1, last, name=f"project{g}"), name=f"after{g}")
            last = dsl.add(last, begin, name=f"join{g}") if g % 2 == 0 else last
        dsl.add_output("out", last)
        return builder.finish("bottlenecks", "bottlenecks.py")


def _origin(name, ways):
    """(name of the whole, which part); part None of what is not split."""
    whole, _, part = name.partition("/")
    return (whole, int(part.removesuffix(f"of{ways}")) - 1) if "of" in part else (name, None)


def _weights(model, draw):
    """Random parameters of the whole model."""
    found = {}
    for node in model.nodes:
        layer = node.layer
        if layer.kind == "conv":
            found[node.name] = draw.normal(size=(*layer.kernel, layer.input.c, layer.output.c))
        elif layer.kind == "dwconv":
            found[node.name] = draw.normal(size=(*layer.kernel, layer.output.c))
        elif layer.kind == "bias":
            found[node.name] = draw.normal(size=layer.output.c)
    return found


def _part_of(layer, weights, part, ways, projection):
    if part is None:
        return weights
    if projection:  # by input channels
        return np.split(weights, ways, axis=2)[part]
    return np.split(weights, ways, axis=-1)[part]


def _windows(layer, image):
    top, left, bottom, right = layer.padding
    padded = np.pad(image, ((top, bottom), (left, right), (0, 0)))
    views = np.lib.stride_tricks.sliding_window_view(padded, layer.kernel, axis=(0, 1))
    return views[:: layer.stride[0], :: layer.stride[1]]  # row, column, channel, kernel's row and column


def _forward(model, weights, image, ways=1):
    """The model's output; the weights are those of the whole, of which parts take their share."""
    values = []
    for node in model.nodes:
        layer, fed = node.layer, [values[s] for s in node.sources]
        whole, part = _origin(node.name, ways)
        if whole in weights:
            mine = _part_of(layer, weights[whole], part, ways, whole.startswith("project"))
            assert mine.size == layer.parameters
        match layer.kind:
            case "input":
                made = image
            case "conv":
                made = np.einsum("yxcij,ijco->yxo", _windows(layer, fed[0]), mine)
            case "dwconv":
                made = np.einsum("yxcij,ijc->yxc", _windows(layer, fed[0]), mine)
            case "bias":
                made = fed[0] + mine
            case "online_norm":
                mean, deviation = fed[0].mean(axis=(0, 1)), fed[0].std(axis=(0, 1))
                made = (fed[0] - mean) / (deviation + EPSILON)
            case "relu":
                made = np.maximum(fed[0], 0)
            case "relu6":
                made = np.clip(fed[0], 0, 6)
            case "add":
                made = fed[0] + fed[1]
            case "output":
                made = fed[0]
        assert made.shape == (layer.output.h, layer.output.w, layer.output.c), node.name
        values.append(made)
    return values[-1]


@pytest.mark.parametrize("ways", [2, 4, 8])
@pytest.mark.parametrize("groups", [1, 3])
def test_parts_compute_what_the_whole_computes(groups, ways):
    model, draw = _bottlenecks(groups), np.random.default_rng(groups)
    weights, image = _weights(model, draw), draw.normal(size=(6, 6, 3))
    parted = split(model, bottlenecks(model), ways)
    assert len(bottlenecks(model)) == groups
    np.testing.assert_allclose(
        _forward(parted, weights, image, ways), _forward(model, weights, image), rtol=1e-10
    )


@pytest.mark.parametrize("ways", [2, 3, 4])
@pytest.mark.parametrize("groups", [1, 3])
def test_parts_have_the_wholes_parameters_and_a_tree_of_sums(groups, ways):
    model = _bottlenecks(groups, wide=24)
    found = bottlenecks(model)
    parted = split(model, found, ways)
    assert parted.parameters == model.parameters
    inside = sum(len(group.nodes) for group in found)
    assert len(parted.nodes) == len(model.nodes) + (ways - 1) * (inside + groups)
    for node in parted.nodes:
        assert node.layer.inputs == tuple(parted.nodes[s].layer.output for s in node.sources)
        whole, part = _origin(node.name, ways)
        if part is None:
            continue
        before, after = model.nodes[model.by_name[whole]].layer, node.layer
        assert after.kind == before.kind
        assert after.gradient == before.gradient
        assert after.parameters * ways == before.parameters
        if whole.startswith("project"):
            assert after.output == before.output
        else:
            assert after.output == replace(before.output, c=before.output.c // ways)


def test_one_group_alone_is_split_where_only_it_is_given():
    model = _bottlenecks(3)
    parted = split(model, bottlenecks(model)[1:2], 2)
    names = {node.name for node in parted.nodes}
    assert {"expand0", "expand1/1of2", "expand1/2of2", "project1/sum1", "expand2"} <= names
    assert "expand1" not in names


def test_channels_that_do_not_divide_are_refused_in_one_line():
    model = _bottlenecks(1, wide=6)
    with pytest.raises(InputError) as raised:
        split(model, bottlenecks(model), 4)
    assert str(raised.value) == "bottlenecks: expand0: 4 parts do not divide 6 channels"


def test_a_bottleneck_has_a_depthwise_layer_no_branch_and_none_of_the_hosts():
    with dsl.new_model() as builder:
        source = dsl.add_input("in", [4, 4, 4])
        first = dsl.conv(4, 1, 1, dsl.dwconv(3, 1, dsl.conv(8, 1, 1, source)))  # its expansion is the host's
        second = dsl.conv(4, 1, 1, dsl.relu(dsl.conv(8, 1, 1, first)))  # no depthwise layer
        wide = dsl.conv(8, 1, 1, second)
        third = dsl.conv(4, 1, 1, dsl.dwconv(3, 1, wide))
        fourth = dsl.conv(4, 1, 1, wide)  # a second consumer
        dsl.add_output("out", dsl.add(third, fourth))
        model = builder.finish("none", "none.py")
    assert bottlenecks(model) == []


def test_groups_that_share_a_layer_are_not_both_split():
    """A projection that is the next group's expansion, too."""
    with dsl.new_model() as builder:
        last = dsl.conv(4, 1, 1, dsl.relu(dsl.add_input("in", [4, 4, 4])), name="a")
        for name in "bc":
            last = dsl.conv(4, 1, 1, dsl.dwconv(3, 1, last), name=name)
        dsl.add_output("out", last)
        model = builder.finish("chain", "chain.py")
    both = bottlenecks(model)
    assert [model.nodes[group.expansion].name for group in both] == ["a", "b"]
    for groups, name in ((both, "a/1of2"), (both[::-1], "a/1of2"), (both[1:], "b/1of2")):
        parted = split(model, groups, 2)
        assert next(node.name for node in parted.nodes if node.name.endswith("/1of2")) == name
        assert parted.parameters == model.parameters


@pytest.mark.slow
def test_those_groups_limit_that_have_a_layer_larger_than_a_share_of_every_device():
    model = load_model("mobilenet_v2")
    instance = Instance(model, load_cluster("arria10x6"))
    period = period_bound(instance)
    part = instance.cluster.devices[0].part

    def share(node):
        """The least, over choices that keep up, of the largest share of a resource."""
        layer, shares = model.nodes[node].layer, []
        for parallelism, storage in layer.builds():
            cost = layer.cost(parallelism, storage, part.family)
            bits = part.dram * period / instance.ticks
            if cost.cycles * instance.ticks <= period * part.clock:
                ram = [cost.ram_bits / part.ram_bits] if part.ram_bits is not None else []
                ram += [a / b for a, b in zip(cost.ram_blocks, part.ram_blocks or (), strict=False)]
                shares.append(max(cost.dsp / part.dsp, *ram, cost.dram_read / bits, cost.dram_write / bits))
        return min(shares, default=1)

    every = bottlenecks(model)
    expected = [group for group in every if max(share(node) for node in group.nodes) > LARGE_SHARE]
    assert limiting_groups(instance) == expected
    assert 0 < len(expected) < len(every)
