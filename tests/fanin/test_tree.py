"""Shapes of aggregation trees, and the parts of their switches."""

import re

import pytest

from fanin.job import Job, Member, Uplink, check_jobs, worker_endpoint
from fanin.tree import check_shape, levels_of, parse_shape, switch_endpoint, tree_of, workers_of
from fanin.wire.ethernet import Endpoint


@pytest.mark.parametrize(
    ("text", "shape", "levels", "workers"),
    [
        ("8", 8, 1, 8),
        ("2x4", (4, 4), 2, 8),
        ("1+2", (1, 2), 2, 3),
        ("2x2x4", ((4, 4), (4, 4)), 3, 16),
        ("2x1+2", ((1, 2), (1, 2)), 3, 6),
        ("1x1x1x32", (((32,),),), 4, 32),
    ],
)
def test_a_shape_has_levels_and_workers(text, shape, levels, workers):
    assert parse_shape(text) == shape
    assert (levels_of(shape), workers_of(shape)) == (levels, workers)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("33x1", "33x1: a switch must have 1 to 32 members, not 33"),
        ("2x33", "a switch must have 1 to 32 members, not 33"),
        ("0x3", "0x3: a switch must have 1 to 32 members, not 0"),
        ("3x0", "a switch must have 1 to 32 members, not 0"),
        ("1x1x1x1x1", "1x1x1x1x1: a tree has at most 4 levels of switches, not 5"),
        ("999x999x999x999x999x999x999x999x9", "at most 4 levels"),
        ("4X8", "a tree must be like 4x8 (four racks of eight workers), 2x4x8 or 1+2, not '4X8'"),
        ("4x", "not '4x'"),
        ("1+", "not '1+'"),
        ("-1", "not '-1'"),
        ("٤", "not '٤'"),
        ("4x8\n", "not"),
        ("9" * 5000, "a tree must be like"),
    ],
)
def test_a_wrong_shape_is_refused(text, cause):
    with pytest.raises(ValueError, match=re.escape(cause)):
        parse_shape(text)


def test_a_shape_of_too_many_levels_is_refused_in_python_too():
    with pytest.raises(ValueError, match="at most 4 levels of switches, not 5"):
        check_shape(((((1,),),),))


def test_every_switch_of_a_tree_has_its_part():
    root, left, right = tree_of((1, 2), job=3, base=8, slots=4).switches
    assert [switch.name for switch in (root, left, right)] == ["switch", "switch-0", "switch-1"]
    assert [switch.members for switch in (root, left, right)] == [("switch-0", "switch-1"), (0,), (1, 2)]
    assert root.part == Job(3, 8, 4, (Member(0, 1, switch_endpoint(1)), Member(1, 2, switch_endpoint(2))))
    workers = (Member(0, 1, worker_endpoint(1)), Member(1, 2, worker_endpoint(2)))
    assert right.part == Job(3, 8, 4, workers, Uplink(2, 2, switch_endpoint(0)))
    assert left.part.uplink == Uplink(1, 1, switch_endpoint(0))


def test_every_member_is_known_by_its_own_addresses():
    switches = tree_of(((4, 4), (4, 4), (1,)), job=1, base=0, slots=1).switches
    by_name = {switch.name: switch for switch in switches}
    assert len({switch.endpoint.mac for switch in switches}) == len(switches) == 9
    seen = []
    for switch in switches:
        for member, name in zip(switch.part.members, switch.members, strict=True):
            expected = worker_endpoint(name) if isinstance(name, int) else by_name[name].endpoint
            assert member.endpoint == expected
            seen.append(name)
            if isinstance(name, str):
                assert by_name[name].part.uplink.endpoint == switch.endpoint
                assert by_name[name].part.uplink.bitmap == member.bitmap
    assert sorted(name for name in seen if isinstance(name, int)) == list(range(17))
    assert len(seen) == 17 + 8


@pytest.mark.parametrize(
    ("uplink", "cause"),
    [
        (Uplink(0, 1, Endpoint(9, 9)), "port 0 of the uplink is also a member's"),
        (Uplink(2, 3, Endpoint(9, 9)), "bitmap must have exactly one of 32 bits set"),
        (Uplink(2, 0, Endpoint(9, 9)), "bitmap must have exactly one of 32 bits set"),
        (Uplink(2, 1 << 32, Endpoint(9, 9)), "bitmap must have exactly one of 32 bits set"),
    ],
)
def test_a_wrong_uplink_is_refused(uplink, cause):
    with pytest.raises(ValueError, match=cause):
        Job(1, 0, 1, (Member(0, 1, worker_endpoint(0)),), uplink)


def test_the_parents_mac_is_at_one_port():
    part = tree_of((1, 1), job=1, base=0, slots=1).switches[1].part
    other = Job(2, 1, 1, (Member(0, 1, switch_endpoint(0)),))
    with pytest.raises(ValueError, match="is at port 0 and at port 1"):
        check_jobs([part, other])


def test_a_tree_knows_its_workers_and_its_size():
    tree = tree_of(((1, 2), (3,)), job=1, base=0, slots=1)
    assert (tree.levels, tree.bits, tree.root.name) == (3, 3, "switch")
    assert [(member.bitmap, switch) for member, switch in tree.workers] == [
        (1, switch_endpoint(2)),
        (1, switch_endpoint(3)),
        (2, switch_endpoint(3)),
        (1, switch_endpoint(5)),
        (2, switch_endpoint(5)),
        (4, switch_endpoint(5)),
    ]
    assert tree.members["switch-0-1"] == ["worker 1", "worker 2"]
    assert tree.members["switch"] == ["switch-0", "switch-1"]


def test_another_job_has_the_same_switches():
    tree = tree_of((2, 2), job=1, base=0, slots=4)
    other = tree.with_job(7, 16, 8)
    assert {(switch.part.id, switch.part.base, switch.part.slots) for switch in other.switches} == {(7, 16, 8)}
    assert other.workers == tree.workers
    with pytest.raises(ValueError, match="base must be a multiple"):
        tree.with_job(1, 4, 8)


def test_default_addresses_of_workers_are_not_those_of_switches():
    """The root has the MAC address after that of worker 65,534."""
    assert worker_endpoint(65_535).mac == switch_endpoint(0).mac
    with pytest.raises(ValueError, match="a tree has at most 65,535 workers, not 65,536"):
        tree_of(parse_shape("2x32x32x32"), job=1, base=0, slots=1)
