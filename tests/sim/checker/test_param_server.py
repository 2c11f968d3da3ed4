"""RDMA-wild's algorithms, searched: whole they keep every gradient; without a part they do not."""

from pathlib import Path

import pytest

from fanin.sim.checker.param_server import CONSISTENT, INVARIANTS, LOST, ONCE, Wild, report, search_wild, table
from fanin.sim.checker.protocol import FINISH
from fanin.sim.checker.search import HOLDS


@pytest.mark.parametrize(
    "sizes",
    [
        {"slots": 1, "versions": 2},
        {"slots": 1, "versions": 3},
        {"slots": 2, "versions": 2},
        {"slots": 2, "versions": 3},
        {"workers": 1, "slots": 3, "versions": 6},
        {"workers": 1, "slots": 8, "versions": 10},
    ],
    ids=str,
)
def test_no_gradient_is_lost_or_applied_twice(sizes):
    found = search_wild(Wild(**sizes))
    assert found.status == HOLDS, report(found)
    assert found.states > 100
    assert report(found) == f"{found.states} states: {'; '.join(INVARIANTS)}"


def broken(**what):
    """The invariant that is broken, and the way."""
    (found,) = search_wild(Wild(**what)).counterexamples.items()
    return found


@pytest.mark.parametrize("slots", [1, 2])
def test_without_the_wait_a_gradient_is_lost(slots):
    invariant, way = broken(slots=slots, versions=3, waits_for_credit=False)
    assert invariant == LOST
    assert way.violation == f"gradient 1 is overwritten by {1 + slots} before it is applied"
    assert way.events[-1] == f"worker 0: gradient {1 + slots} arrives at the server"
    assert len(way.events) == 9 + 5 * (slots - 1)


def test_a_counterexample_is_a_line_an_event():
    lines = report(search_wild(Wild(slots=1, versions=3, waits_for_credit=False))).splitlines()
    assert lines[:4] == [
        "broken: no gradient is lost",
        "  1  worker 0: begins to read model 0",
        "  2  worker 0: takes the values of model 0",
        "  3  worker 0: pushes gradient 1",
    ]
    assert lines[-1] == "     gradient 1 is overwritten by 2 before it is applied"


def test_a_version_in_front_of_its_gradient_lets_the_server_apply_what_is_not_there():
    invariant, way = broken(versions=2, version_last=False)
    assert (invariant, way.violation) == (ONCE, "under GVnum 1 the server applies gradient 0")


def test_two_buffers_need_the_second_look_from_three_slots_on():
    assert search_wild(Wild(workers=1, slots=2, versions=6, rereads_version=False)).status == HOLDS
    assert broken(workers=1, slots=3, versions=6, rereads_version=False)[0] == CONSISTENT


def test_a_protocol_that_gets_stuck_is_found(monkeypatch):
    monkeypatch.setattr(Wild, "done", lambda self, pair: False)
    invariant, way = broken(versions=1, workers=1)
    assert (invariant, way.events) == (FINISH, ())
    assert way.violation == "from here the end is out of reach"


def test_the_documentation_shows_what_is_found():
    page = (Path(__file__).parents[3] / "docs/systems/param-server.md").read_text()
    assert "\n".join(table()) in page
