"""Plans of groups: each vector is added once, at all workers; rings of a round share no node; bad sizes."""

from collections import Counter
from itertools import product

import pytest

from fanin.ring.facts import MAX_NODES
from fanin.ring.groups import Groups, Scheme, one_ring

SHAPES = [
    Groups(groups, members, *levels)
    for groups, members in ((2, 2), (4, 4), (3, 5))
    for levels in product(Scheme, Scheme)
]


def name(groups):
    return f"{groups}, {groups.below} below {groups.above}"


def carried_out(plan, vector, zeros, reduce):
    """What each node holds in the end; asserts that rings of a round share no node."""
    held = [vector(node) for node in range(plan.workers)] + [zeros] * (plan.nodes - plan.workers)
    for each in plan.rounds:
        members = [node for ring in each.rings for node in ring.members]
        assert len(set(members)) == len(members)
        for ring in each.rings:
            assert {*ring.contributors, *ring.receivers} <= {*ring.members}
            total = reduce([held[node] if node in ring.contributors else zeros for node in ring.members])
            for node in ring.receivers:
                held[node] = total
    return held


def added(plan):
    """Whose vectors each node's sum has, and how often."""
    return carried_out(plan, lambda node: Counter([node]), Counter(), lambda given: sum(given, Counter()))


@pytest.mark.parametrize("groups", SHAPES, ids=name)
def test_every_worker_gets_each_vector_once(groups):
    plan = groups.plan
    held = added(plan)
    assert len(held) == groups.nodes
    assert all(each == Counter(range(plan.workers)) for each in held[: plan.workers])


@pytest.mark.parametrize("groups", SHAPES, ids=name)
def test_every_workers_sum_has_come_about_in_the_same_way(groups):
    """So their bits are equal, whatever a codec makes of a vector that it has encoded before."""
    held = carried_out(groups.plan, str, "zeros", lambda given: f"({' '.join(given)})")
    assert len(set(held[: groups.workers])) == 1


@pytest.mark.parametrize("groups", SHAPES, ids=name)
def test_a_worker_takes_in_its_last_round(groups):
    """So its sum lies in its memory when that is complete."""
    plan = groups.plan
    for worker in range(plan.workers):
        rings = plan.rounds[plan.last_round(worker)].rings
        assert any(worker in ring.receivers for ring in rings)
        assert not any(
            worker in ring.members for each in plan.rounds[plan.last_round(worker) + 1 :] for ring in each.rings
        )


@pytest.mark.parametrize(
    ("below", "above", "rounds", "nodes"),
    [
        ("aggregator", "aggregator", 16, 21),
        ("ring", "aggregator", 10, 17),
        ("ring", "ring", 3, 16),
        ("aggregator", "ring", 9, 20),
    ],
)
def test_rounds_and_nodes_of_4x4_are_those_of_the_page(below, above, rounds, nodes):
    groups = Groups.parse("4x4", below=below, above=above)
    assert (str(groups), groups.workers, groups.nodes) == ("4x4", 16, nodes)
    assert len(groups.plan.rounds) == rounds


def test_one_ring_is_a_plan_of_one_round():
    plan = one_ring(5)
    assert added(plan) == [Counter(range(5))] * 5
    assert len(plan.rounds) == 1


@pytest.mark.parametrize("text", ["", "4", "4x", "x4", "4x4x4", "-2x2", "4 x 4", "4,4"])
def test_what_is_no_pair_of_sizes_is_refused(text):
    with pytest.raises(ValueError, match="groups must be like 4x4, groups and workers of each, not"):
        Groups.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1x4", "groups must be at least 2, not 1"),
        ("4x1", "members must be at least 2, not 1"),
        ("16x16", f"groups must have at most {MAX_NODES} nodes, aggregators too, not 256"),
    ],
)
def test_sizes_out_of_range_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Groups.parse(text)


def test_a_level_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="'star' is not a valid Scheme"):
        Groups.parse("4x4", above="star")
