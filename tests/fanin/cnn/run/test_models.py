"""The machines: the golden model batch by batch is the same as in one job, and tells how far it is."""

import numpy as np
import pytest

from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.run.build import open_build
from fanin.cnn.run.checkpoint import flatten_states
from fanin.cnn.run.machine import GOLDEN, RTL, one_hot
from fanin.cnn.run.models import Golden
from fanin.cnn.run.options import ARITHMETICS, PLACES
from fanin.cnn.training import Job
from fanin.sim.cosim.arrays import Arith
from tests.fanin.cnn.run.conftest import images


def test_options_name_the_machines_and_the_operators_that_there_are():
    assert PLACES == (RTL, GOLDEN)
    assert set(Arith) == set(ARITHMETICS)


@pytest.fixture(scope="module")
def network(small):
    return open_build(small.build).planned.network


def test_batches_one_by_one_leave_the_state_of_one_job(network):
    words, labels = images(29, 3)
    states, job = tuple(initial_state(network, 1)), Job.of(29, 8, 0.1, 0.9)
    whole = GoldenNetwork(network, states)
    softmax = whole.train(words, one_hot(network, labels), job)
    machine, told = Golden(network), []
    machine.load(states)
    outputs = machine.train(words, labels, job, told.append)
    assert told == [8, 16, 24, 29]
    assert np.array_equal(outputs, softmax.reshape(29, 3))
    found, right = (flatten_states(network, tuple(each)) for each in (machine.dump(), whole.states))
    assert all(np.array_equal(found[name], right[name]) for name in right)
    assert np.array_equal(machine.evaluate(words), whole.evaluate(words).reshape(29, 3))
