"""What is measured for the model."""

from fanin.sim.scale.point import rank_cost


def test_one_more_rank_costs_rank_0_microseconds():
    assert 1e-6 < rank_cost(ranks=8, meetings=20) < 5e-3
