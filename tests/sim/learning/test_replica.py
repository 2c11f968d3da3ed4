"""Data-parallel replicas: nodes with shards are one trainer with their samples; NaN is named; bad sizes."""

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.golden.mlp import Mlp
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.sim.learning.mlp import Samples, load_digits
from fanin.sim.learning.replica import DataParallel, Dataset, Replica, State, measure, train

RING = RingConfig(lanes=8)


def job_of(**options):
    return DataParallel(**{"network": Mlp((64, 16, 10)), "nodes": 3, "batch": 16, "epochs": 2} | options)


def data_of(job):
    return Dataset(job, *load_digits(0))


def test_binary32_learns_as_binary64_does():
    job = job_of(epochs=6)
    data = data_of(job)
    narrow = train(job, data, lambda gradients: all_reduce(gradients, RING))
    wide = train(job, data, sum, kind=np.float64)
    assert narrow.parameters[0].dtype == np.float32
    assert wide.parameters[0].dtype == np.float64
    for mine, theirs in zip(narrow.parameters, wide.parameters, strict=True):
        assert np.abs(mine - theirs).max() < 1e-4
    assert measure(job, data, narrow.parameters).accuracy > 0.9


def test_nodes_train_as_one_with_all_their_samples():
    job = job_of()
    data = data_of(job)
    many = train(job, data, sum, kind=np.float64)

    state, alone = State.initial(job, np.float64), job_of(nodes=1, batch=48)

    class Joined:  # the nodes' mini-batches one behind the other
        steps = data.steps

        def shards(self, node, index):
            parts = [data.shards(each, index) for each in range(job.nodes)]
            images = np.concatenate([part.images for part in parts])
            return Samples(images, np.concatenate([part.digits for part in parts]))

    one = train(alone, Joined(), sum, state=state)
    for mine, theirs in zip(many.parameters, one.parameters, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_all_layers_may_be_exchanged_as_one_vector():
    job = job_of()
    data, sizes = data_of(job), set()

    def exchange(vectors):
        sizes.update(vector.size for vector in vectors)
        return sum(vectors)

    assert train(job, data, exchange, single_vector=True).equals(train(job, data, sum))
    assert sizes == {65 * 16 + 17 * 10}


def test_a_training_goes_on_from_a_state_bit_for_bit():
    job = job_of(epochs=3)
    data, ends = data_of(job), []
    whole = train(job, data, sum, on_epoch=lambda state: ends.append(state.copy()))
    rest = train(job, data, sum, state=ends[0])
    assert ends[0].step == data.steps
    assert rest.equals(whole)
    assert not ends[0].equals(whole)


def test_what_is_not_finite_is_named():
    job = job_of()
    data, state = data_of(job), State.initial(job)
    state.step = 7
    state.parameters[0][5] = np.nan
    replica = Replica(job, data, 2, state)
    replica.forward()
    with pytest.raises(
        CheckFailed, match=r"node 2, layer 1, step 7: the gradient has values that are not finite"
    ):
        replica.backward(1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"network": Mlp((63, 10))}, "layers must begin with the data's 64 features, not 63"),
        ({"network": Mlp((64, 9))}, "layers must end with at least the data's 10 classes, not 9"),
        ({"batch": 450}, "batch must be 1 to 449, a worker's share of 1347 samples, not 450"),
        ({"rate": 0}, "rate must be above 0"),
        ({"rate": float("nan")}, "rate must be above 0"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"decay": -1.0}, "decay must be at least 0"),
        ({"epochs": 0}, "epochs must be at least 1"),
    ],
)
def test_bad_jobs(options, text):
    with pytest.raises(ValueError, match=text):
        data_of(job_of(**options))
