"""Ring nodes that are started, aborted, set up wrongly and started again; each clean job is exact."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from fanin.codec.facts import Bfp
from fanin.link import LinkConfig
from fanin.ring.facts import PRESETS, RingConfig
from fanin.sim.cosim.cluster import Cluster
from fanin.sim.cosim.simulator import Group
from fanin.sim.ring.cosim import RingCosim
from tests.hdl.ring.faulty_node import BAD, FaultyRingNode
from tests.sim.ring import test_nic
from tests.sim.ring.life import LateSwitch, LifeHosts
from tests.sim.ring.test_cosim import NODES, RANDOM, SIZES  # the same builds serve both
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator

BYTES = 1 << 18  # of a node's memory
NETWORKS = {
    "good": LinkConfig(),
    "bad": LinkConfig(drop=0.01, duplicate=0.01, reorder=0.01, corrupt=0.01),
}
CONFIG = RingConfig(**SIZES)
#: The build of the first one also serves ``ring run``.
CONFIGS = [PRESETS["tiny"], *slow(*(replace(CONFIG, codec=codec) for codec in (None, Bfp(4, 7, 5, 8), RANDOM)))]


@pytest.mark.parametrize(("network", "rounds"), [("good", 3), *slow(("good", 150), ("bad", 150))])
@pytest.mark.parametrize("config", CONFIGS, ids=["tiny", "none", "bfp", "mx"])
def test_nothing_of_a_job_reaches_the_next(config, network, rounds):
    cluster = RingCosim(config, nodes=NODES, quiet=True)._cluster
    steps, _ = live(cluster, config, NETWORKS[network], rounds, new_seed())
    assert steps >= 4 * rounds


@pytest.mark.slow
def test_nothing_of_a_job_reaches_the_next_where_memory_errs():
    cluster = Cluster(lambda: [Group(FaultyRingNode(config=CONFIG), NODES)], quiet=True)
    _, ends = live(cluster, CONFIG, NETWORKS["good"], 150, new_seed(), bad=BAD)
    assert ends["memory: MEMORY"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("network", list(NETWORKS))
def test_nothing_of_a_job_reaches_the_next_beside_frames_of_hosts(network):
    """Nor does anything of it reach the hosts' frames."""
    config, nodes = test_nic.CONFIG, test_nic.NODES
    cluster = RingCosim(config, nodes=nodes, nic=True, quiet=True)._cluster
    _, ends = live(cluster, config, NETWORKS[network], 100, new_seed(), nodes=nodes, nic=True)
    assert ends["frames of hosts"] > 100


def live(cluster, config, link, rounds, seed, *, nodes=NODES, **life):
    """The life of a ring's nodes: steps, and how jobs ended."""
    hosts = functools.partial(LifeHosts, config=config, nodes=nodes, rounds=rounds, seed=seed, **life)
    switch = functools.partial(LateSwitch, nodes, seed, 0.02)
    raw = cluster.run(
        memories=([np.zeros(BYTES, np.uint8)] for _ in range(nodes)),
        phases=[],
        longest_wait=1_000_000,
        hosts=hosts,
        switch=switch,
        link=link,
        seed=seed,
    )
    print(raw.hosts)
    return raw.hosts
