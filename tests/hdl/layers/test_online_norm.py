# amaranth: UnusedElaboratable=no
"""Online normalisation beside the golden model, over many frames and jobs; and as fast as its cost says."""

import numpy as np
import pytest

from fanin.cnn.golden import layers as golden
from fanin.cnn.golden.image import state_image, state_of_image
from fanin.cnn.layers import online_norm
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.online_norm import OnlineNorm
from fanin.sim.cnn.layer_bench import Job, LayerBench
from fanin.sim.cosim.arrays import Arith
from tests.fp32_values import SPECIAL
from tests.hdl.layers.operators import check_cost
from tests.support import new_seed, slow

DECAYS = {"forward_decay": 0.9, "backward_decay": 0.8}


def made(shape, lanes, *, gradient=True):
    """A component with decays short enough for state to follow a few frames."""
    layer = online_norm.OnlineNorm(inputs=(Shape(*shape),), gradient=gradient, **DECAYS)
    return OnlineNorm(layer=layer, parallelism=Parallelism(pi=lanes, po=lanes))


QUICK = {
    "3 groups": ((3, 4, 6), 2),  # a position waits for its sums
    "10 groups": ((2, 2, 10), 1),
}
GRID = {
    "1 group": ((1, 2, 3), 3),
    "digits": ((8, 8, 16), 4),
    "8 groups": ((5, 3, 8), 1),
    "9 groups": ((3, 3, 18), 2),
    "1 word": ((1, 1, 1), 1),
    "wide": ((3, 2, 32), 16),
}


@pytest.fixture(scope="module")
def bench():
    components = {name: made(*what) for name, what in QUICK.items()}
    return LayerBench(components | {"no gradient": made((3, 4, 6), 2, gradient=False)})


@pytest.fixture(scope="module")
def large_bench():
    return LayerBench({name: made(*what) for name, what in GRID.items()})


def words(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32).ravel()


def drawn(rng, layer, frames, odd=0.0):
    """Features whose channels differ in mean and size, a share of them words on which arithmetic goes wrong."""
    shape = (frames, layer.input.h, layer.input.w, layer.input.c)
    x = rng.normal(rng.normal(0, 2, layer.input.c), rng.uniform(0.1, 5, layer.input.c), shape)
    special = rng.choice(np.array(SPECIAL, np.uint32), shape).view(np.float32)
    return np.where(rng.random(shape) < odd, special, x.astype(np.float32))


def random_state(rng, layer, p):
    """As if some frames had passed."""
    image = rng.normal(0, 0.3, layer.state_words).astype(np.float32)
    image[layer.input.c : 3 * layer.input.c] = rng.uniform(0.5, 2, 2 * layer.input.c)
    return state_of_image(layer, p, image.view(np.uint32))


def job(layer, p, state, x, dy, mode):
    """What the golden model makes of frames, and the job that makes it here. Moves ``state`` on."""
    y, saved = golden.forward(layer, p, state, [x], train=mode is Mode.TRAIN)
    feeds, expected = {"features0": words(x)}, {"outputs": words(y)}
    if layer.gradient and mode is Mode.TRAIN:
        (dx,) = golden.backward(layer, p, state, saved, dy)
        feeds["gradients"] = words(dy)
        expected |= {"input_gradients0": words(dx), "save": saved.ravel()}
    expect = {name: len(found) for name, found in expected.items() if name != "save"}
    return Job(mode=mode, frames=len(x), feeds=feeds, expect=expect), expected


def check(bench, name, component, seed, *, frames=6, odds=0.0, loop_latency=1, odd=0.0, change=lambda x: x):
    """State in, frames that train, that do not, and that do again, state out, all as in golden."""
    layer, p = component.layer, component.parallelism
    rng = np.random.default_rng(seed)
    state = random_state(rng, layer, p)
    jobs, expected = [Job(mode=Mode.LOAD, feeds={"load": state_image(layer, p, state)})], [{}]
    for mode in (Mode.TRAIN, Mode.EVALUATE, Mode.TRAIN):
        x, dy = change(drawn(rng, layer, frames, odd)), drawn(rng, layer, frames, odd)
        for found, item in zip((jobs, expected), job(layer, p, state, x, dy, mode), strict=True):
            found.append(item)
    jobs.append(Job(mode=Mode.DUMP, expect={"dump": layer.state_words}))
    expected.append({"dump": state_image(layer, p, state)})
    loops = {"save": "replay"} if layer.gradient else {}
    results = bench.run(name, jobs, loops=loops, loop_latency=loop_latency, odds=odds, seed=seed)
    for number, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        for stream, found in wanted.items():
            assert result.words[stream].tolist() == found.tolist(), (number, stream)
    return results


@pytest.mark.verilator
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(
    "odds",
    [0.3, {"features0": 0.9}, {"outputs": 0.9}, {"gradients": 0.9}, {"input_gradients0": 0.9}],
    ids=["phases", "features", "outputs", "gradients", "input gradients"],
)
def test_it_equals_the_golden_model_whichever_side_stalls(bench, name, odds):
    check(bench, name, made(*QUICK[name]), new_seed(), odds=odds)


@pytest.mark.verilator
@pytest.mark.parametrize("odd", [0.003, 0.1])
def test_special_values(bench, odd):
    check(bench, "3 groups", made(*QUICK["3 groups"]), new_seed(), frames=20, odd=odd)


@pytest.mark.verilator
def test_a_constant_channel_leaves_epsilon(bench):
    def constant(x):
        x[..., 0] = 3
        x[..., 1] = 0
        return x

    component = made(*QUICK["3 groups"])
    results = check(bench, "3 groups", component, new_seed(), frames=300, change=constant)
    variance = results[-1].words["dump"].view(np.float32)[component.layer.input.c :][:3]
    assert np.all(variance[:2] < component.layer.epsilon)
    assert variance[2] > component.layer.epsilon


@pytest.mark.verilator
@pytest.mark.parametrize("odds", [0.0, 0.3])
def test_without_gradient_nothing_is_saved(bench, odds):
    results = check(bench, "no gradient", made((3, 4, 6), 2, gradient=False), new_seed(), odds=odds)
    assert "save" not in results[1].words


@pytest.mark.verilator
@pytest.mark.parametrize("name", [*QUICK, "no gradient"])
def test_it_takes_exactly_the_cycles_of_its_cost_and_is_as_late_as_it_says(bench, name):
    component = made(*QUICK.get(name, ((3, 4, 6), 2)), gradient=name in QUICK)
    _, train, evaluate, *_ = check(bench, name, component, new_seed(), frames=5)
    check_cycles(component, train, evaluate, frames=5)


def check_cycles(component, train, evaluate, *, frames):
    layer, p = component.layer, component.parallelism
    positions = layer.input.h * layer.input.w

    def starts(result, stream):
        found = result.cycles_of[stream].astype(int)
        return found[:: len(found) // frames]

    cycles = [layer.cycles(p)] * (frames - 1)
    assert np.diff(starts(train, "outputs")).tolist() == cycles
    without = 1 + positions * max(layer.groups(p), 8)
    assert np.diff(starts(evaluate, "outputs")).tolist() == [without] * (frames - 1)
    late = [("features0", "outputs", 15), *([("gradients", "input_gradients0", 28)] * layer.gradient)]
    for source, result, latency in late:
        assert (train.cycles_of[source] + latency).tolist() == train.cycles_of[result].tolist()
    if layer.gradient:  # as fast, whenever it begins
        assert np.diff(starts(train, "input_gradients0")).tolist() == cycles


@pytest.mark.verilator
def test_a_slow_memory_changes_no_bit(bench):
    check(bench, "3 groups", made(*QUICK["3 groups"]), new_seed(), loop_latency=1000)


@pytest.mark.verilator
@pytest.mark.slow
@pytest.mark.parametrize("name", GRID)
@pytest.mark.parametrize("odds", [0.0, 0.3, 0.8])
def test_other_shapes(large_bench, name, odds):
    component = made(*GRID[name])
    _, train, evaluate, *_ = check(large_bench, name, component, new_seed(), frames=20, odds=odds, odd=0.0003)
    if not odds:
        check_cycles(component, train, evaluate, frames=20)


@pytest.mark.verilator
@pytest.mark.slow
def test_operators_in_gates_give_the_same_bits():
    component = made(*QUICK["3 groups"])
    check(LayerBench({"gates": component}, arith=Arith.RTL), "gates", component, new_seed(), odds=0.3)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("lanes", [2, *slow(1, 6)])
def test_its_operators_and_memories_are_those_of_its_cost(lanes, gradient, monkeypatch):
    check_cost(made((3, 4, 12), lanes, gradient=gradient), monkeypatch)


@pytest.mark.parametrize(("pi", "po"), [(2, 3), (4, 4)])
def test_lanes_that_do_not_divide_the_channels_are_refused(pi, po):
    layer = online_norm.OnlineNorm(inputs=(Shape(2, 2, 6),))
    with pytest.raises(ValueError, match=f"pi and po must be one divisor of 6 channels, not {pi} and {po}"):
        OnlineNorm(layer=layer, parallelism=Parallelism(pi=pi, po=po))
