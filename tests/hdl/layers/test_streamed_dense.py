# amaranth: UnusedElaboratable=no
"""A dense layer with parameters in memory learns as its golden model does, and costs what the planner says."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fanin.cnn.layers.family import WORD_BITS, family
from fanin.cnn.layers.layer import Parallelism, Storage
from fanin.cnn.layers.port import beat_bits
from fanin.cnn.layers.schedule import Way
from fanin.hdl.layers.forward import Forward
from fanin.hdl.layers.streamed_gradient import StreamedInputGradient
from fanin.hdl.layers.weight_gradient import WeightGradient
from fanin.sim.cnn.dense_memory import DenseAndMemory, memory_loops, read_streams
from fanin.sim.cnn.layer_bench import LayerBench
from tests.hdl.layers.convolutions import LOOPS, Learner, dense
from tests.support import new_seed

pytestmark = pytest.mark.verilator


def case(words, outputs, pic, poc, *, gradient=True, frames=1):
    """A layer and its parallelism, with the narrowest streams that do not slow it down."""
    layer = dense(words, outputs, gradient=gradient)
    return layer, layer.with_streams(Parallelism(pic=pic, poc=poc, frames=frames))


LAYERS = {
    "first": case(24, 10, 2, 5, gradient=False),
    "forward is slowest": case(24, 10, 2, 5),
    "two tiles": case(32, 16, 2, 2),  # all ways take the same time
    "a large tile": case(68, 8, 4, 1),
    "fewer sums than eight": case(6, 3, 2, 1),
    "two frames": case(24, 10, 2, 5, frames=2),
    "four frames, a tile of outputs": case(32, 32, 2, 2, frames=4),
    "eight frames, first": case(24, 10, 2, 5, gradient=False, frames=8),
    "four frames, fewer sums than eight": case(6, 3, 2, 1, frames=4),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def all_loops(layer):
    """Loops of the memory and those of a convolution."""
    return memory_loops(layer) | LOOPS


def build(cases):
    """A bench of cases: layer and parallelism by name."""
    return LayerBench({name: DenseAndMemory(layer=layer, parallelism=p) for name, (layer, p) in cases.items()})


@pytest.fixture(scope="module")
def bench():
    return build(LAYERS)


def check(bench, name, learner, **options):
    """Run what a learner is to do."""
    return learner.check(bench, name, loops=all_loops(learner.layer), **options)


@every_layer
@pytest.mark.parametrize("odds", [0.0, 0.4])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_learns_as_its_golden_model(bench, name, odds, momentum):
    """Batches of several frames, of one, and a short one; evaluation between them changes nothing."""
    seed = new_seed()
    learner = Learner(*LAYERS[name], seed=seed, odd=0)
    learner.train(7, 3, momentum)
    learner.dump()
    learner.evaluate(3)
    learner.dump()
    learner.train(2, 1, momentum)
    learner.evaluate(1)
    learner.train(2, 5, momentum)
    learner.dump()
    check(bench, name, learner, odds=odds, seed=seed, loop_latency=1 + seed % 100)


@every_layer
def test_any_stream_may_be_the_slow_one(bench, name):
    layer, p = LAYERS[name]
    seed, loops = new_seed(), all_loops(layer)
    learner = Learner(layer, p, seed=seed, odd=0)
    learner.train(5, 2)
    learner.dump()
    for stream in {"features0", *layer.gradient * ["input_gradients0"], *loops, *loops.values()}:
        check(bench, name, learner, odds={stream: 0.9}, seed=seed)


@every_layer
def test_zeros_subnormals_infinities_and_nans(bench, name):
    """Few at a time, since one spoils most of what comes later."""
    seed = new_seed()
    for odd in 0.003, 0.01, 0.1, 1.0:
        learner = Learner(*LAYERS[name], seed=seed, odd=odd)
        learner.train(2, 1)
        learner.dump()
        learner.evaluate(2)
        learner.train(3, 2)
        learner.dump()
        check(bench, name, learner, odds=0.2, seed=seed)


@every_layer
def test_a_frame_takes_the_cycles_of_its_cost(bench, name):
    _check_cycles(bench, name, *LAYERS[name])


def _check_cycles(bench, name, layer, p):
    """Of the weight gradient, once the others have got ahead as far as they can; none is slower.

    The bench's memory gives all streams their words at once; what a port takes is tests/sim/cnn's.
    """
    frames, even, group = 64, 32, p.frames
    learner = Learner(layer, p, seed=new_seed(), odd=0)
    learner.train(frames, frames)
    _, result = check(bench, name, learner)
    # A velocity comes back from where it was added to: through the bench twice, memory, and both queues.
    # With a group of frames, all of them are added to it before.
    schedule = layer.schedule(p)
    velocity = WeightGradient(schedule=schedule, streamed=True).latency + 5
    velocity += (group - 1) * schedule.round_cycles(Way.WEIGHT_GRADIENT)

    def cycles(stream):
        return np.diff(result.cycles_of[stream].reshape(frames // group, -1)[even // group :, -1]).tolist()

    expected = max(schedule.period, velocity)
    assert layer.cycles(p) == -(-schedule.period // group)
    assert cycles("replay") == ((frames - even) // group - 1) * [expected]
    for stream in ["outputs", *layer.gradient * ["input_gradients0"]]:
        assert max(cycles(stream)) <= expected, stream


@every_layer
def test_a_frame_moves_the_words_of_its_cost(bench, name):
    """And an update reads and writes weights and velocities once."""
    layer, p = LAYERS[name]
    frames, learner = 16, Learner(layer, p, seed=new_seed(), odd=0)
    learner.train(frames, 8)
    _, result = check(bench, name, learner)
    cost, updates = layer.cost(p, Storage.DRAM, family("arria10")), 2

    def bits(*streams):
        transfers = sum(len(result.cycles_of[stream]) for stream in streams)
        return WORD_BITS * layer.parameter_width(p) * transfers

    def moved(rate):  # of parameters, in whole beats of which the streams leave the last one's spare words
        passes, rest = divmod(p.frames * (rate - beat_bits(layer.saved_words)), beat_bits(layer.parameters))
        assert rest < p.frames
        return passes * WORD_BITS * layer.parameters

    update = 2 * WORD_BITS * layer.parameters * updates
    assert bits(*read_streams(layer)) == frames // p.frames * moved(cost.dram_read) + update
    assert bits("new_weights", "new_velocities") == frames // p.frames * moved(cost.dram_write) + update
    assert bits("new_weights") == update / 2


@pytest.mark.parametrize("name", ["forward is slowest", "two frames", "four frames, a tile of outputs"])
def test_latency_of_outputs_and_input_gradients(bench, name):
    """From the last word of a group of frames, whose weights have come by then."""
    layer, p = LAYERS[name]
    learner = Learner(layer, p, seed=new_seed())
    learner.train(p.frames, p.frames)
    _, result = check(bench, name, learner)
    cycles, schedule = result.cycles_of, layer.schedule(p)
    assert cycles["outputs"][0] - cycles["features0"][-1] == Forward(schedule=schedule, streamed=True).latency
    back, bound = (
        int(cycles["input_gradients0"][0] - cycles["gradients"][-1]),
        StreamedInputGradient(schedule=schedule).latency,
    )
    assert bound / 2 <= back <= bound, (back, bound)
    assert p.frames > 1 or back == bound


@every_layer
def test_an_update_takes_a_cycle_a_parameter(bench, name):
    layer, p = LAYERS[name]
    learner = Learner(layer, p, seed=new_seed())
    learner.train(1, 1)
    _, result = check(bench, name, learner)
    written = result.cycles_of["new_weights_write"]
    read = result.cycles_of["forward_read"][len(written)]
    assert written[-1] - read == 1 + layer.parameters + 15 + 1  # the bench, StreamedUpdate, the bench
    assert set(np.diff(written)) <= {layer.parameter_width(p)}


def _in_grid(words, outputs):
    """A layer, first or not, and one of the parallelisms that it can have, for 1 to 8 frames at a time."""
    seed = 100 * words + outputs
    layer, rng = dense(words, outputs, gradient=seed % 3 != 0), random.Random(seed)
    p = rng.choice([p for p in layer.parallelisms() if layer.lanes(p) <= 16])
    return layer, layer.with_streams(replace(p, frames=rng.choice([1, 2, 4, 8])))


GRID = {
    f"{words} words": {f"{words}, {outputs}": _in_grid(words, outputs) for outputs in (1, 3, 10, 16, 27)}
    for words in (1, 5, 24, 34, 64)
}


@pytest.mark.slow
@pytest.mark.parametrize("cases", GRID.values(), ids=GRID)
def test_the_grid(cases):
    bench, seed = build(cases), new_seed()
    for (name, (layer, p)), batch, odds in product(cases.items(), (1, 3), (0.0, 0.4)):
        learner = Learner(layer, p, seed=seed, odd=0)
        learner.train(5, batch, 0.9)
        learner.dump()
        learner.evaluate(2)
        learner.train(3, batch, 0.0)
        learner.dump()
        check(bench, name, learner, odds=odds, seed=seed, loop_latency=1 + seed % 50)
    for name, (layer, p) in cases.items():
        _check_cycles(bench, name, layer, p)
