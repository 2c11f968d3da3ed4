"""A network's training, against its layers called one by one."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.cnn.facts import Consumer
from fanin.cnn.golden import layers
from fanin.cnn.golden.folds import tree
from fanin.cnn.golden.network import BACKWARD, FORWARD, GoldenNetwork, NonFinite, Trace, initial_state
from fanin.cnn.training import Job
from fanin.golden.fp32 import add
from tests.fanin.cnn.golden.networks import residual
from tests.support import new_seed

NETWORK = residual(first=4, second=6)
BATCH = 5
JOB = Job.of(13, BATCH, 0.05, 0.9)


def frames(count):
    rng = np.random.default_rng(new_seed())
    labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, count)]
    return rng.random((count, 8, 8, 1)).astype(np.float32), labels


def same_states(found, expected):
    for one, two in zip(found, expected, strict=True):
        assert list(one) == list(two)
        for name, array in one.items():
            np.testing.assert_array_equal(array.view(np.uint32), two[name].view(np.uint32))


def test_the_first_weights_are_kaimings_by_seed_and_stage():
    states = initial_state(NETWORK, 3)
    for index, (stage, state) in enumerate(zip(NETWORK.stages, states, strict=True)):
        if stage.layer.kind in ("conv", "dense"):
            shape = state["weights"].shape
            drawn = np.random.default_rng([3, index]).standard_normal(shape) * np.sqrt(2 / np.prod(shape[:3]))
            np.testing.assert_array_equal(state["weights"], drawn.astype(np.float32))
        elif stage.layer.kind == "bias":
            assert not state["weights"].any()
        if "velocity" in state:
            assert state["velocity"].shape == state["weights"].shape
            assert not state["velocity"].any()
        if stage.layer.kind == "online_norm":
            assert {name: set(array.tolist()) for name, array in state.items()} == {
                "mean": {0.0}, "variance": {1.0}, "scale": {1.0}, "ey": {0.0}, "e1": {0.0}
            }  # fmt: skip


def by_hand(states, images, labels, eta, momentum):
    """One batch; the gradient of a map is that of its consumers, by hand."""
    stages = NETWORK.stages
    outputs, saved, sent = {}, {}, {}
    for index, stage in enumerate(stages):
        given = images if index == NETWORK.images else labels.reshape(-1, 1, 1, 10)
        inputs = [outputs[source] for source in stage.sources] or [given]
        outputs[index], saved[index] = layers.forward(stage.layer, stage.parallelism, states[index], inputs)
    for index in reversed(range(NETWORK.loss + 1)):
        stage = stages[index]
        if stage.layer.kind == "input":
            continue
        parts = [sent[at] for at in sorted(sent) if stages[at[0]].sources[at[1]] == index]
        gradient = tree(parts) if parts else None
        for port, frames in enumerate(
            layers.backward(stage.layer, stage.parallelism, states[index], saved[index], gradient)
        ):
            sent[index, port] = frames
    for stage, state in zip(stages, states, strict=True):
        layers.update(stage.layer, state, eta, momentum)
    return outputs, sent


@pytest.mark.parametrize("kernels", [{}, {"kernels": layers.READABLE}], ids=["compiled", "readable"])
def test_a_job_is_its_batches_and_the_trace_has_every_stream(kernels):
    """The last batch is short; frames 3 to 11 lie in all three."""
    images, labels = frames(JOB.frames)
    golden = GoldenNetwork(NETWORK, initial_state(NETWORK, 1), **kernels)
    trace = Trace(range(3, 12))
    softmax = golden.train(images, labels, JOB, trace)
    states, results, outputs, gradients = initial_state(NETWORK, 1), [], {}, {}
    for first in range(0, JOB.frames, BATCH):
        batch = slice(first, first + BATCH)
        eta = JOB.eta if first + BATCH < JOB.frames else JOB.last_eta
        made, sent = by_hand(states, images[batch], labels[batch], eta, JOB.momentum)
        results.append(made[NETWORK.loss])
        for whole, part in ((outputs, made), (gradients, sent)):
            for key, array in part.items():
                whole.setdefault(key, []).append(array)
    same_states(golden.states, states)
    np.testing.assert_array_equal(softmax, np.concatenate(results))
    assert set(trace.outputs) == set(range(len(NETWORK.stages)))
    for index, parts in outputs.items():
        np.testing.assert_array_equal(trace.outputs[index], np.concatenate(parts)[3:12])
    assert set(trace.gradients) == {Consumer(*key) for key in gradients}
    for key, parts in gradients.items():
        np.testing.assert_array_equal(trace.gradients[Consumer(*key)], np.concatenate(parts)[3:12])
    assert golden.nonfinite is None


def test_a_fork_of_three_is_added_as_a_tree():
    """The second relu feeds a convolution and both additions: (g0 ⊕ g1) ⊕ g2 in the order of the edges."""
    fork = next(i for i, consumers in enumerate(NETWORK.consumers) if len(consumers) == 3)
    images, labels = frames(2)
    trace = Trace(range(2))
    GoldenNetwork(NETWORK, initial_state(NETWORK, 1)).train(images, labels, Job.of(2, 2, 0.1, 0.9), trace)
    g = [trace.gradients[edge] for edge in NETWORK.consumers[fork]]
    relu, p = NETWORK.stages[fork].layer, NETWORK.stages[fork].parallelism
    saved = trace.outputs[fork].reshape(2, -1).view(np.uint32)
    saves_words = replace(relu, masked=False)
    (expected,) = layers.backward(saves_words, p, {}, saved, add(add(g[0], g[1]), g[2]))
    source = Consumer(fork, 0)
    np.testing.assert_array_equal(trace.gradients[source], expected)


def test_jobs_in_turn_are_one_job():
    images, labels = frames(10)
    whole, parts = (GoldenNetwork(NETWORK, initial_state(NETWORK, 1)) for _ in range(2))
    whole.train(images, labels, Job.of(10, BATCH, 0.1, 0.9))
    for half in (slice(0, 5), slice(5, 10)):
        parts.train(images[half], labels[half], Job.of(5, BATCH, 0.1, 0.9))
    same_states(whole.states, parts.states)


def test_evaluation_learns_nothing_and_takes_any_number_of_frames():
    images, labels = frames(300)
    states = initial_state(NETWORK, 1)
    golden = GoldenNetwork(NETWORK, states)
    softmax = golden.evaluate(images)
    same_states(golden.states, states)
    assert softmax.shape == (300, 1, 1, 10)
    np.testing.assert_array_equal(softmax[299:], golden.evaluate(images[299:]))
    first = GoldenNetwork(NETWORK, states).train(images[:1], labels[:1], Job.of(1, 1, 0.1, 0.9))
    np.testing.assert_array_equal(softmax[:1], first)


def test_another_number_of_frames_is_refused():
    images, labels = frames(JOB.frames + 1)
    golden = GoldenNetwork(NETWORK, initial_state(NETWORK, 1))
    with pytest.raises(ValueError, match="14 images and 13 labels for a job of 13 frames"):
        golden.train(images, labels[1:], JOB)


def trained(images, labels, states):
    golden = GoldenNetwork(NETWORK, states)
    golden.train(images, labels, JOB)
    return golden


def test_the_first_infinity_or_nan_is_reported():
    """The earliest frame's, going forward before backward."""
    states = initial_state(NETWORK, 1)
    images, labels = frames(JOB.frames)
    for frame, value in ((9, np.inf), (7, np.nan)):
        images[frame, 0, 0, 0] = value
    image = NETWORK.stages[NETWORK.images].name
    assert trained(images, labels, states).nonfinite == NonFinite(image, FORWARD, 7)
    images, labels = frames(JOB.frames)
    labels[6] = 3e38
    dense = next(i for i, stage in enumerate(NETWORK.stages) if stage.layer.kind == "dense")
    states[dense]["weights"] *= np.float32(10)
    golden = trained(images, labels, states)
    assert golden.nonfinite == NonFinite(NETWORK.stages[dense].name, BACKWARD, 6)
    golden.train(images[:6], labels[:6], Job.of(6, 6, 0.0, 0.0))
    assert golden.nonfinite.frame == 0
