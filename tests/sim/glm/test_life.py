# amaranth: UnusedElaboratable=no
"""One node, many jobs, thousands of steps: after whatever happened to it, a clean job gives the golden bits."""

import functools

import numpy as np
import pytest

from fanin.link import LinkConfig
from fanin.sim.cosim.cluster import Cluster
from fanin.sim.cosim.simulator import Group
from tests.hdl.glm.faulty_node import MEMORY, FaultyGlmNode
from tests.hdl.glm.test_life import NODES
from tests.sim.glm.life import World
from tests.support import new_seed

pytestmark = [pytest.mark.verilator, pytest.mark.slow]

LINK = LinkConfig(delay_ns=10.0, corrupt=0.005)


@functools.cache
def cluster(kind):
    """Of one node, built once."""
    return Cluster(lambda: [Group(FaultyGlmNode(config=NODES[kind]))], quiet=True)


def live(kind, *, steps, seed, latency):
    """A life of so many steps; steps and clean jobs."""
    garbage = np.random.default_rng(seed)
    world = World(node=NODES[kind], seed=seed, steps=steps)
    result = cluster(kind).run(
        memories=[[garbage.integers(0, 256, MEMORY, np.uint8) for _ in range(NODES[kind].read_ports)]],
        phases=[],
        longest_wait=1 << 20,
        hosts=world.hosts,
        switch=world.switch,
        link=LINK,
        switch_ns=0.0,
        paced=False,
        seed=seed,
        memory_latency=latency,
        quiet_cycles=500,
    )
    return result.hosts


@pytest.mark.parametrize("kind", list(NODES))
def test_a_long_life_leaves_golden_bits(kind):
    seed = new_seed()
    for number, latency in enumerate((3, 20, 150)):
        steps, clean = live(kind, steps=400, seed=seed + number, latency=latency)
        assert steps > 400
        assert clean > 15
