"""The model of what ranks cost: it finds the costs that made its points, and knows its limits."""

from dataclasses import astuple, replace

import numpy as np
import pytest

from fanin.sim.scale.model import Costs, Load
from tests.support import new_seed

COSTS = Costs(5e-6, 60e-6, 40e-6, 200e-6, 50e-6, 100e-6)
LOAD = Load(nodes=64, cycles=15_400, frames=2_000, meetings=100, cores=2)


def test_the_fit_finds_the_costs():
    rng = np.random.default_rng(new_seed())
    loads = [
        replace(
            LOAD,
            ranks=ranks,
            nodes=nodes,
            frames=int(rng.integers(1_000, 9_000)),
            delay=float(rng.choice([0, 1e-3])),
        )
        for ranks in (1, 2, 4, 16)
        for nodes in (16, 64)
    ]
    found = Costs.fit(loads, [COSTS.seconds(load) for load in loads], rank=COSTS.rank)
    assert astuple(found) == pytest.approx(astuple(COSTS), rel=1e-6)


def test_costs_are_never_negative():
    loads = [replace(LOAD, ranks=ranks) for ranks in (1, 2, 4)]
    assert min(astuple(Costs.fit(loads, [1.0, 0.01, 5.0], rank=0))) >= 0


def test_two_ranks_on_two_cores_halve_what_nodes_take_and_no_more():
    assert 1.5 < COSTS.speed_up(replace(LOAD, ranks=2)) < 2
    assert COSTS.speed_up(replace(LOAD, ranks=2, cores=1)) < 1


def test_more_ranks_than_cores_take_turns():
    four, sixteen = (replace(LOAD, ranks=ranks) for ranks in (4, 16))
    assert COSTS.seconds(sixteen) > COSTS.seconds(four)
    machines = replace(sixteen, machines=8)
    assert COSTS.seconds(machines) < COSTS.seconds(four)


def test_an_uneven_share_counts_in_full():
    even, uneven = (COSTS.seconds(replace(LOAD, nodes=nodes, ranks=4, cores=4)) for nodes in (64, 65))
    assert uneven - even == pytest.approx(LOAD.cycles * COSTS.node_cycle)


def test_a_delay_is_paid_at_each_meeting_and_never_alone():
    late = replace(LOAD, delay=1e-3)
    assert COSTS.seconds(late) == COSTS.seconds(LOAD)
    apart = COSTS.seconds(replace(late, ranks=2)) - COSTS.seconds(replace(LOAD, ranks=2))
    assert apart == pytest.approx(0.1)
