"""Cycles of a frame, against counting by loops; and the choices of parallelism that layers offer."""

import itertools
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.family import family, family_names
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import REUSE, Parallelism, Shape, Storage, divisors
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss

same_every_time = settings(derandomize=True, deadline=None, max_examples=100)

SMALL = Shape(5, 6, 4)
WINDOW = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0, 1, 1)}
LAYERS = {
    "conv": Conv(inputs=(SMALL,), output_channels=6, **WINDOW),
    "conv in groups": Conv(inputs=(SMALL,), output_channels=6, groups=2, gradient=True, **WINDOW),
    "conv 1×1": Conv(inputs=(SMALL,), output_channels=6, kernel=(1, 1), stride=(1, 1), gradient=True),
    "dwconv": DepthwiseConv(inputs=(SMALL,), output_channels=4, groups=4, gradient=True, **WINDOW),
    "dense": Dense(inputs=(SMALL,), output_channels=6, gradient=True),
    "im2col": Im2col(inputs=(SMALL,), **WINDOW),
    "avg_pool": AvgPool(inputs=(SMALL,), gradient=True, **WINDOW),
    "global_avg_pool": GlobalAvgPool(inputs=(SMALL,), gradient=True),
    "bias": Bias(inputs=(SMALL,), gradient=True),
    "relu": Relu(inputs=(SMALL,), gradient=True),
    "relu6": Relu6(inputs=(SMALL,)),
    "add": Add(inputs=(SMALL, SMALL), gradient=True),
    "online_norm": OnlineNorm(inputs=(SMALL,), gradient=True),
    "input": Input(shape=SMALL),
    "output": Output(inputs=(SMALL,)),
    "soft_cross_loss": SoftCrossLoss(inputs=(Shape(1, 1, 10), Shape(1, 1, 10)), gradient=True),
}
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


def steps(size, at_once):
    """What each step works on."""
    return [range(begin, min(begin + at_once, size)) for begin in range(0, size, at_once)]


def by_loops(layer, p):
    """(cycles, multiplications, most of them in one cycle) of a convolution, a cycle at a time."""
    groups, inputs, outputs = [range(g, g + 1) for g in range(layer.groups)], *layer.group
    if isinstance(layer, DepthwiseConv):  # whose channels are worked on side by side
        groups = steps(layer.input.c, p.poc)
    chunks = [groups, steps(layer.output.w, p.ph), steps(inputs, p.pic), steps(outputs, p.poc)]
    single = [[range(i, i + 1) for i in range(size)] for size in (layer.output.h, *layer.kernel)]
    done, cycles, most = set(), 0, 0
    for cycle in itertools.product(*chunks, *single):
        now = set(itertools.product(*cycle))
        assert not done & now
        done |= now
        cycles += 1
        most = max(most, len(now))
    return cycles, len(done), most


@pytest.mark.parametrize("name", ["conv", "conv in groups", "conv 1×1", "dwconv", "dense"])
def test_every_multiplication_is_done_once_in_as_many_cycles_as_said(name):
    layer = LAYERS[name]
    for p in layer.parallelisms():
        cycles, done, most = by_loops(layer, p)
        schedule = layer.schedule(p)
        waits = any(schedule.round_steps(way) < REUSE for way in schedule.ways)
        assert (layer.compute_cycles(p) > cycles) == waits
        assert layer.compute_cycles(p) >= cycles
        assert done == layer.parameters * layer.output.h * layer.output.w
        assert most == layer.lanes(p)


@pytest.mark.parametrize(
    ("inputs", "outputs", "p", "cycles"),
    [
        # 12 sums of 30 terms forward, 30 of 12 back: none waits
        (60, 12, Parallelism(pic=2, poc=1), 360),
        # 4 sums are added to every 8 cycles, 30 times; back, 30 sums 4 times
        (60, 12, Parallelism(pic=2, poc=3), 240),
        # one sum, 10 times; back, 10 sums once; 10 words of weights
        (60, 12, Parallelism(pic=6, poc=12), 80),
        # all at once; the one word of weights is added to once
        (60, 12, Parallelism(pic=60, poc=12), 8),
    ],
)
def test_a_dense_layer_waits_for_its_adders(inputs, outputs, p, cycles):
    layer = Dense(inputs=(Shape(1, 1, inputs),), output_channels=outputs, gradient=True)
    assert layer.compute_cycles(p) == cycles


@every_layer
def test_a_frame_takes_as_long_as_the_slowest_of_compute_and_streams(layer):
    odd = [Parallelism(pi=5, po=3), Parallelism(pi=3, po=7), Parallelism(pi=1000, po=1000)]
    for p in [*layer.parallelisms(), *odd]:
        streams = [len(steps(shape.words, p.pi)) for shape in layer.inputs]
        assert layer.cycles(p) == max(
            layer.compute_cycles(p), *streams, len(steps(layer.output.words, p.po)), 0
        )


def dimensions(layer):
    """What each value of a parallelism has to divide."""
    ends = {"pi": layer.input.c if layer.inputs else 1, "po": layer.output.c}
    if isinstance(layer, DepthwiseConv):
        return {"pic": 1, "poc": layer.input.c, "ph": layer.output.w, **ends}
    if isinstance(layer, Conv):
        return {"pic": layer.group[0], "poc": layer.group[1], "ph": layer.output.w, **ends}
    return {"pic": 1, "poc": 1, "ph": 1, **ends}


@every_layer
def test_parallelism_divides_its_dimensions(layer):
    found = list(layer.parallelisms())
    assert len(found) == len(set(found))
    for p in found:
        values = asdict(p)
        assert values.pop("frames") == 1
        assert all(dimensions(layer)[name] % value == 0 for name, value in values.items()), p


@pytest.mark.parametrize("name", ["conv", "conv in groups", "conv 1×1", "dwconv", "dense"])
def test_every_choice_of_multipliers_is_offered_with_the_narrowest_streams_of_the_fastest(name):
    layer = LAYERS[name]
    values = {name: divisors(size) for name, size in dimensions(layer).items()}
    offered = {(p.pic, p.poc, p.ph): p for p in layer.parallelisms()}
    assert set(offered) == set(itertools.product(values["pic"], values["poc"], values["ph"]))
    for p in offered.values():
        lanes = (p.poc, p.poc) if isinstance(layer, DepthwiseConv) else (p.pic, p.poc)
        taken = [
            [n for n in values[name] if n in divisors(size) or n in range(size, size * p.ph + 1, size)]
            for name, size in zip(("pi", "po"), lanes, strict=True)
        ]  # by memories of ph columns and so many lanes
        every = [replace(p, pi=pi, po=po) for pi, po in itertools.product(*taken)]
        least = min(layer.cycles(q) for q in every)
        assert layer.cycles(p) == least
        assert not any(layer.cycles(q) == least for q in every if (q.pi < p.pi) or (q.po < p.po))


@pytest.mark.parametrize("name", [name for name, layer in LAYERS.items() if not isinstance(layer, Conv)])
def test_every_width_of_the_streams_is_offered(name):
    layer = LAYERS[name]
    assert {p.po for p in layer.parallelisms()} == set(divisors(layer.output.c))
    if name == "im2col":
        assert {p.pi for p in layer.parallelisms()} == set(divisors(layer.input.c))


@st.composite
def convolutions(draw):
    """Any convolution."""
    shape = Shape(draw(st.integers(1, 30)), draw(st.integers(1, 30)), draw(st.sampled_from([1, 3, 8, 12, 32])))
    kernel = (draw(st.integers(1, min(5, shape.h))), draw(st.integers(1, min(5, shape.w))))
    more = {
        "inputs": (shape,),
        "kernel": kernel,
        "stride": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "gradient": draw(st.booleans()),
    }
    if draw(st.booleans()):
        return DepthwiseConv(output_channels=shape.c, groups=shape.c, **more)
    groups = draw(st.sampled_from([g for g in (1, 2, 4) if shape.c % g == 0]))
    return Conv(output_channels=groups * draw(st.sampled_from([1, 6, 16])), groups=groups, **more)


@given(st.data(), st.one_of(convolutions(), st.sampled_from(list(LAYERS.values()))))
@same_every_time
def test_more_parallelism_takes_no_more_cycles_and_no_fewer_dsps(data, layer):
    limits = dimensions(layer)
    less = {name: data.draw(st.sampled_from(divisors(size)), name) for name, size in limits.items()}
    more = {
        name: data.draw(st.sampled_from(divisors(limits[name] // value)), name) for name, value in less.items()
    }
    first, second = Parallelism(**less), Parallelism(**{name: less[name] * more[name] for name in less})
    assert layer.cycles(second) <= layer.cycles(first)
    for found in map(family, family_names()):
        assert found.dsp_blocks(layer.operations(second)) >= found.dsp_blocks(layer.operations(first))


@given(st.data(), st.one_of(convolutions(), st.sampled_from(list(LAYERS.values()))))
@same_every_time
def test_what_is_offered_costs_something_sensible_on_every_family(data, layer):
    p = data.draw(st.sampled_from(list(layer.parallelisms())))
    for found, storage in itertools.product(map(family, family_names()), layer.storages):
        cost = layer.cost(p, storage, found)
        memories = layer.memories(p, storage)
        assert cost.cycles >= max(1, layer.compute_cycles(Parallelism()) // layer.lanes(p))
        assert cost.dsp >= 0
        assert cost.ram_bits == sum(m.width * m.depth * m.copies for m in memories)
        capacity = [max(depth * width for depth, width in ram.shapes) for ram in found.ram]
        in_blocks = sum(
            memory.bits for memory in memories if memory.clocked and memory.depth >= found.registers_below
        )
        assert sum(n * bits for n, bits in zip(cost.ram_blocks, capacity, strict=True)) >= in_blocks
        assert cost.dram_read >= cost.dram_write >= 0


@given(convolutions(), st.data())
@same_every_time
def test_what_moves_to_dram_is_paid_by_the_frame(layer, data):
    p = data.draw(st.sampled_from(list(layer.parallelisms())))
    reads = 2 + layer.gradient  # passes over weights, one or two, and velocities
    for found in map(family, family_names()):
        chip, dram = (layer.cost(p, storage, found) for storage in Storage)
        assert chip.dsp == dram.dsp
        saved, parameters = (-(-words // 16) for words in (layer.input.words, layer.parameters))  # beats
        assert dram.cycles == max(chip.cycles, saved + reads * parameters)
        assert chip.dram_read == chip.dram_write == 512 * saved
        assert dram.dram_read - chip.dram_read == reads * 512 * parameters
        assert dram.dram_write - chip.dram_write == 512 * parameters


@given(convolutions())
@same_every_time
def test_without_parameters_before_it_no_gradient_leaves_a_layer(layer):
    p = next(iter(layer.parallelisms()))
    first, later = replace(layer, gradient=False), replace(layer, gradient=True)
    assert first.trains
    assert later.trains
    for found in map(family, family_names()):
        lanes = layer.lanes(p)
        assert found.dsp_blocks(first.operations(p)) == found.dsp_blocks({"mac": 2 * lanes + 2})
        assert found.dsp_blocks(later.operations(p)) == found.dsp_blocks({"mac": 3 * lanes + 2})
        assert later.cost(p, Storage.CHIP, found).ram_bits > first.cost(p, Storage.CHIP, found).ram_bits


@every_layer
def test_gradients_are_needed_behind_parameters(layer):
    assert layer.trains == (layer.parameters > 0 or layer.gradient)
    assert layer.storages == (tuple(Storage) if layer.kind == "dense" else (Storage.CHIP,))
