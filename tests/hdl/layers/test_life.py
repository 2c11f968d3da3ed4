# amaranth: UnusedElaboratable=no
"""A cluster node lives: after any prefix a clean job has golden bits, or the node asks for a reset first."""

import functools

import numpy as np
import pytest

from fanin.cnn.examples import EXAMPLES
from fanin.hdl.layers.node import ClusterNode
from fanin.sim.cosim.arrays import Arith
from fanin.sim.cosim.cluster import Cluster
from fanin.sim.cosim.simulator import Group
from tests.hdl.layers.faulty_node import FaultyNode
from tests.hdl.layers.life import Life, memory_map
from tests.support import new_seed

pytestmark = pytest.mark.verilator


@functools.cache
def cluster(name, faulty):
    """Of one node; one that is not ``faulty`` is built once with those of other tests."""
    kind = FaultyNode if faulty else ClusterNode
    return Cluster(lambda: [Group(kind(network=EXAMPLES[name]), arith=Arith.C)], quiet=True)


def live(name, *, steps, latency, seed, faulty=True):
    network = EXAMPLES[name]
    result = cluster(name, faulty).run(
        memories=[[np.zeros(memory_map(network).end, np.uint8)]],
        phases=[],
        longest_wait=1 << 20,
        hosts=functools.partial(Life, network=network, seed=seed, steps=steps, faulty=faulty),
        independent_hosts=True,
        memory_latency=latency,
        quiet_cycles=500,
    )
    print(sorted(result.hosts.items()), result.cycles)
    return result


def test_any_life_leaves_golden_bits_or_asks_for_a_reset():
    seed = new_seed()
    live("tiny", steps=20, latency=(20, 250)[seed % 2], seed=seed, faulty=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "residual", "streamed"])
def test_long_lives_leave_golden_bits_or_ask_for_a_reset(name):
    """Memory errs, too."""
    seed = new_seed()
    for number, latency in enumerate((3, 64, 400)):
        live(name, steps=400, latency=latency, seed=seed + number)
