# amaranth: UnusedElaboratable=no
"""Relu, Relu6, Add, Concat, Fork: bit for bit, both ways, while any side is slow; and as fast as they say."""

import numpy as np
import pytest

from fanin.cnn.golden.folds import tree
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.hdl.layers import add, concat, fork, relu
from fanin.hdl.layers.interface import Mode
from tests.hdl.layers.frames import check, collected, drawn, transfers
from tests.support import new_seed, simulate, slow

SHAPE, NARROW = Shape(3, 4, 6), Shape(3, 4, 3)
LAYERS = {
    "relu": (relu.Relu, Relu(inputs=(SHAPE,), gradient=True), 1, 1),
    "relu6": (relu.Relu6, Relu6(inputs=(SHAPE,), gradient=True), 1, 1),
    "add": (add.Add, Add(inputs=(SHAPE, SHAPE), gradient=True), 8, 0),
    "concat": (concat.Concat, Concat(inputs=(SHAPE, NARROW, SHAPE), gradient=True), 1, 0),
    "relu, words saved": (relu.Relu, Relu(inputs=(SHAPE,), gradient=True, masked=False), 1, 1),
    "relu6, words saved": (relu.Relu6, Relu6(inputs=(SHAPE,), gradient=True, masked=False), 1, 1),
    "relu without gradient": (relu.Relu, Relu(inputs=(SHAPE,)), 1, None),
    "add without gradient": (add.Add, Add(inputs=(SHAPE, SHAPE)), 8, None),
    "concat without gradient": (concat.Concat, Concat(inputs=(NARROW, SHAPE)), 1, None),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


@every_layer
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVALUATE])
@pytest.mark.parametrize("lanes", [3, *slow(1)])
def test_it_equals_the_golden_model_while_any_side_stalls(name, mode, lanes):
    make, layer, *_ = LAYERS[name]
    check(make, layer, Parallelism(pi=lanes, po=lanes), mode=mode, seed=new_seed(), frames=8)


@pytest.mark.parametrize(
    ("shape", "lanes"),
    [(Shape(3, 3, 43), 43), (Shape(2, 5, 12), 12), *slow((Shape(3, 5, 1), 1), (Shape(2, 3, 96), 96))],
    ids=str,
)
def test_masks_of_any_width_fill_words(shape, lanes):
    """43: two words a transfer, of which the last of a frame holds one; 12: unevenly into a word."""
    check(
        relu.Relu,
        Relu(inputs=(shape,), gradient=True),
        Parallelism(pi=lanes, po=lanes),
        seed=new_seed(),
        frames=6,
    )


@pytest.mark.parametrize("lanes", [3, 6])
def test_a_mask_leaves_and_returns_in_a_cycle(lanes):
    """A word of memory holds the bits of 32 outputs, or those that a frame still has."""
    layer, p = Relu(inputs=(SHAPE,), gradient=True), Parallelism(pi=lanes, po=lanes)
    cycles = check(relu.Relu, layer, p, seed=new_seed(), stall=0, frames=1)
    completing = [-(-min(bits, SHAPE.words) // lanes) - 1 for bits in (32, 64, 96)]  # outputs that fill a word
    assert cycles["save"] == [cycles["outputs"][n] for n in completing]
    assert cycles["gradients"][0] == cycles["replay"][0] + 1


@every_layer
def test_it_takes_and_gives_a_transfer_a_cycle_as_late_as_it_says(name):
    make, layer, forward, backward = LAYERS[name]
    p = Parallelism(pi=3, po=3)
    cycles = check(make, layer, p, seed=new_seed(), stall=0)
    taken = sorted({cycle for n in range(len(layer.inputs)) for cycle in cycles[f"features[{n}]"]})
    assert cycles["outputs"] == [cycle + forward for cycle in taken]
    assert cycles["outputs"] == list(range(cycles["outputs"][0], cycles["outputs"][0] + 4 * layer.cycles(p)))
    if layer.gradient:
        given = sorted({cycle for n in range(len(layer.inputs)) for cycle in cycles[f"input_gradients[{n}]"]})
        assert given == [cycle + backward for cycle in cycles["gradients"]]
        assert len(cycles["gradients"]) == cycles["gradients"][-1] - cycles["gradients"][0] + 1


@pytest.mark.parametrize("consumers", [2, 3, *slow(4, 5)])
@pytest.mark.parametrize("stall", [0.0, 0.3], ids=["full rate", "stalls"])
def test_a_fork_copies_forward_and_adds_up_in_the_order_of_its_consumers(consumers, stall):
    seed, lanes = new_seed(), 2
    rng = np.random.default_rng(seed)
    features = drawn(rng, 6, SHAPE)
    gradients = [drawn(rng, 6, SHAPE) for _ in range(consumers)]
    expected = {f"outputs[{n}]": transfers(features, lanes) for n in range(consumers)}
    expected["input_gradients"] = transfers(tree(gradients), lanes)
    log = simulate(
        fork.Fork(lanes=lanes, consumers=consumers),
        drive={
            "features": transfers(features, lanes),
            **{f"gradients[{n}]": transfers(g, lanes) for n, g in enumerate(gradients)},
        },
        collect={name: len(items) for name, items in expected.items()},
        stall=stall,
        seed=seed,
    )
    for name, items in expected.items():
        assert collected(log, name) == items, name
    if not stall:
        latency = 1 + 7 * (consumers - 1).bit_length()
        entered, left = ([cycle for cycle, _ in log[name]] for name in ("gradients[0]", "input_gradients"))
        assert left == [cycle + latency for cycle in entered]
        assert left == list(range(left[0], left[0] + len(left)))


def test_a_fork_of_one_is_refused():
    with pytest.raises(ValueError, match="consumers must be at least 2, not 1"):
        fork.Fork(lanes=2, consumers=1)
