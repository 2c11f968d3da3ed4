"""Ring nodes that are started, aborted, set up wrongly and started again; each clean job is exact."""

import functools

import numpy as np
import pytest

from fanin.ring import RingConfig
from fanin.sim.network import LinkConfig
from fanin.sim.ring.cosim import RingCosim
from tests.sim.ring.life import LateSwitch, LifeHosts
from tests.sim.ring.test_cosim import NODES, SIZES  # the same builds serve both
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator

BYTES = 1 << 18  # of a node's memory
NETWORKS = {
    "good": LinkConfig(),
    "bad": LinkConfig(drop=0.01, duplicate=0.01, reorder=0.01, corrupt=0.01),
}


@pytest.mark.parametrize(("network", "rounds"), [("good", 3), *slow(("good", 150), ("bad", 150))])
def test_nothing_of_a_job_reaches_the_next(network, rounds):
    seed = new_seed()
    cosim = RingCosim(RingConfig(**SIZES), nodes=NODES, quiet=True)
    steps, ends = live(cosim, NETWORKS[network], rounds, seed)
    print(steps, ends)
    assert steps >= 4 * rounds


def live(cosim, link, rounds, seed):
    """The life of a ring's nodes: steps, and how jobs ended."""
    hosts = functools.partial(LifeHosts, config=cosim.config, nodes=NODES, rounds=rounds, seed=seed)
    switch = functools.partial(LateSwitch, NODES, seed, 0.02)
    raw = cosim._cluster.run(
        memories=([np.zeros(BYTES, np.uint8)] for _ in range(NODES)),
        phases=[],
        longest_wait=1_000_000,
        hosts=hosts,
        switch=switch,
        link=link,
        seed=seed,
    )
    return raw.hosts
