"""Whether everything finishes, and the way to where it does not: against drawn graphs in plain Python."""

import pytest

from fanin.sim.checker.finish import FinishCheck, OutOfTime
from fanin.sim.checker.protocol import FINISH
from fanin.sim.checker.search import HOLDS, NOT_PROVED, Search, search
from tests.sim.checker.drawn import Drawn
from tests.support import slow


def follows(graph, events):
    """The node to which edges lead from the start, one behind the other."""
    node = 0
    for edge in events:
        assert graph.sources[edge] == node
        node = int(graph.targets[edge])
    return node


@pytest.mark.parametrize("processes", [1, *slow(2, 3)])
def test_a_state_from_which_the_end_is_out_of_reach_is_found_where_there_is_one(processes):
    held = 0
    for seed in range(60 if processes == 1 else 20):
        graph = Drawn(seed, degree=4 + seed % 4)
        stuck, distances = graph.stuck(), graph.distances()
        found = search(Drawn(seed, degree=4 + seed % 4), processes=processes)
        assert found.states == len(distances), seed
        assert found.holds(FINISH) is not bool(stuck), seed
        held += not stuck
        if stuck:
            events = found.counterexamples[FINISH].events
            assert follows(graph, events) in stuck, seed
            assert len(events) == min(distances[node] for node in stuck), seed
    assert 0.1 < held / (seed + 1) < 0.9


def test_all_states_that_are_stuck_are_told():
    for seed in range(40):
        graph = Drawn(seed, degree=4)
        made = Search(graph)
        made.run()
        told = FinishCheck(made._steps, made._exchange, made._group, has_time=lambda left: True).stuck()
        assert set(made.visited.rows(told)[:, 0].tolist()) == graph.stuck(), seed


def test_a_search_whose_time_is_over_before_that_is_known_proves_nothing(monkeypatch):
    class Slow(FinishCheck):
        def stuck(self):
            raise OutOfTime

    graph = next(graph for graph in (Drawn(seed, degree=6) for seed in range(60)) if not graph.stuck())
    assert search(graph).status == HOLDS
    monkeypatch.setattr("fanin.sim.checker.search.FinishCheck", Slow)
    found = search(graph)
    assert (found.exhausted, found.status, found.holds(FINISH)) == (True, NOT_PROVED, None)
    made = Search(graph)
    made.run()
    with pytest.raises(OutOfTime):
        FinishCheck(made._steps, made._exchange, made._group, has_time=lambda left: False).stuck()
