"""Action profiles through finsy's client: which member a packet gets, as BMv2 has it, and what is refused."""

import contextlib
import itertools
import select

import pytest
from finsy import p4entity
from finsy.proto import p4r

from fanin.base.errors import ToolFailed
from fanin.sim.switch.bmv2.p4runtime import P4Runtime
from tests.sim.switch.service.served import SELECTED, Served, frame_to

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
SPREAD, MARKS = "I.spread", "I.marks"


@pytest.fixture
def served():
    served = Served(SELECTED, ports=range(6))
    yield served
    served.close()


@pytest.fixture
def control(served):
    with contextlib.closing(P4Runtime(served.address, device=7)) as control:
        yield control


def _forward(port):
    return p4entity.P4TableAction("forward", port=port)


def _member(number, action=None, profile="I.ways"):
    return p4entity.P4ActionProfileMember(profile, member_id=number, action=action)


def _group(number, *members, size=5):
    """Members as (id, weight) or (id, (weight, port))."""
    shares = [p4entity.P4Member(member, weight=weight) for member, weight in members]
    return p4entity.P4ActionProfileGroup("I.ways", group_id=number, max_size=size, members=shares)


def _entry(table=SPREAD, to=0x10, **action):
    match = p4entity.P4TableMatch({"destination": to})
    indirect = p4entity.P4IndirectAction(**action) if action else None
    return p4entity.P4TableEntry(table, match=match, action=indirect)


def _crc16(data):
    """CRC-16/ARC, bit by bit: another reading than the switch's."""
    crc = 0
    for byte, bit in itertools.product(data, range(8)):
        crc = (crc >> 1) ^ (0xA001 * ((crc ^ byte >> bit) & 1))
    return crc


def _place(source, port, count):
    """BMv2's choice: the keys side by side, zeros behind them up to a whole byte, modulo the members."""
    return _crc16((source << 16 | port << 7).to_bytes(8, "big")) % count


def _leaves(served, sources, port=0):
    """By which port a frame of each source leaves."""
    hosts = {interface.host: number for number, interface in served.interfaces.items()}
    left = []
    for source in sources:
        served.send(port, frame_to(0x10, source=source))
        (ready,), _, _ = select.select(hosts, [], [], 20)
        assert ready.recv(4096) == frame_to(0x10, source=source)
        left.append(hosts[ready])
    return left


def test_a_group_chooses_by_the_hash_of_the_selectors_keys(served, control):
    for number, port in ((7, 1), (3, 2), (5, 3)):
        control._write(INSERT, _member(number, _forward(port)))
    control._write(INSERT, _group(1, (3, 1), (5, 2), (7, 1)))
    control._write(INSERT, _entry(group_id=1))
    order = [1, 2, 3, 3]  # handles: 7, 3, 5 as they came, and one more for the weight of 5
    sources = [pow(3, n, 1 << 48) for n in range(20, 44)]
    expected = [order[_place(source, 4, 4)] for source in sources]
    assert set(expected) == {1, 2, 3}
    assert _leaves(served, sources, port=4) == expected
    (counted,) = control._read(p4entity.P4DirectCounterEntry("I.spread_hits", table_entry=_entry()))
    assert counted.data.packet_count == len(sources)


def test_a_member_changes_wherever_it_is_and_a_group_shrinks(served, control):
    for number in (1, 2):
        control._write(INSERT, _member(number, _forward(number)))
    control._write(INSERT, _group(1, (1, 1), (2, 1)))
    control._write(INSERT, _entry(group_id=1))
    control._write(MODIFY, _member(2, _forward(3)))
    sources = range(8)
    assert _leaves(served, sources) == [(1, 3)[_place(s, 0, 2)] for s in sources]
    control._write(MODIFY, _group(1, (2, 1)))
    assert _leaves(served, sources) == [3] * len(sources)
    control._write(MODIFY, _entry(member_id=1))
    assert _leaves(served, sources) == [1] * len(sources)
    control._write(DELETE, _group(1))
    control._write(DELETE, _member(2))
    assert [m.member_id for m in control._read(p4entity.P4ActionProfileMember("I.ways"))] == [1]


def test_a_member_is_left_out_while_its_watched_port_is_down(served, control):
    for number in (1, 2):
        control._write(INSERT, _member(number, _forward(number)))
    control._write(INSERT, _group(1, (1, (1, 5)), (2, 1)))
    control._write(INSERT, _entry(group_id=1))
    sources = range(6)
    both = [(1, 2)[_place(source, 0, 2)] for source in sources]
    assert 1 in both
    assert _leaves(served, sources) == both
    served.interfaces[5].carrier = False
    served.forwarding.run_in_loop(served.forwarding._check_ports)
    assert _leaves(served, sources) == [2] * len(sources)
    assert control._read(_group(1))[0].members[0].weight == (1, 5)  # what was written
    served.interfaces[5].carrier = True
    served.forwarding.run_in_loop(served.forwarding._check_ports)
    assert _leaves(served, sources) == both


def test_an_empty_group_does_nothing(served, control):
    control._write(INSERT, _group(1))
    control._write(INSERT, _entry(group_id=1))
    assert _leaves(served, range(3)) == [0] * 3  # BMv2: without an egress port, port 0


def test_an_action_set_is_read_back_as_it_was_written(served, control):
    shot = [(2, _forward(1)), ((1, 5), _forward(2)), (1, _forward(1))]
    control._write(INSERT, _entry(action_set=shot))
    (found,) = control._read(p4entity.P4TableEntry(SPREAD))
    assert found.action == p4entity.P4IndirectAction(shot)
    sources = range(12)
    assert _leaves(served, sources) == [(1, 1, 2, 1)[_place(s, 0, 4)] for s in sources]
    control._write(MODIFY, _entry(action_set=[(5, _forward(3))]))
    assert _leaves(served, sources) == [3] * len(sources)
    with pytest.raises(ToolFailed, match=r"RESOURCE_EXHAUSTED: I\.ways is full: 8"):
        control._write(INSERT, _entry(to=0x11, action_set=[(4, _forward(3))]))
    control._write(DELETE, _entry())
    control._write(INSERT, _entry(to=0x11, action_set=[(4, _forward(3))]))


def test_a_profile_without_a_selector(served, control):
    mark = p4entity.P4TableAction("I.mark", kind=0x1234)
    control._write(INSERT, _member(9, mark, "I.hops"))
    control._write(INSERT, _entry(MARKS, member_id=9))
    (found,) = control._read(p4entity.P4TableEntry(MARKS))
    assert found.action == p4entity.P4IndirectAction(member_id=9)
    served.send(2, frame_to(0x10))
    assert served.receive(0) == frame_to(0x10, kind=0x1234)


def _prepared(control):
    for number in (1, 2, 3):
        control._write(INSERT, _member(number, _forward(number)))
    control._write(INSERT, _group(1, (1, 1)))
    control._write(INSERT, _entry(group_id=1))
    control._write(INSERT, _entry(to=0x11, member_id=2))


REFUSED = [
    (INSERT, _member(0, _forward(1)), "INVALID_ARGUMENT: I.ways: member: 0 means none"),
    (INSERT, _member(1, _forward(1)), "ALREADY_EXISTS: I.ways: member 1 exists"),
    (MODIFY, _member(9, _forward(1)), "NOT_FOUND: there is no I.ways: member 9"),
    (MODIFY, _member(1), "INVALID_ARGUMENT: I.ways: member 1 without an action"),
    (DELETE, _member(1), "FAILED_PRECONDITION: I.ways: member 1 is in use"),
    (DELETE, _member(2), "FAILED_PRECONDITION: I.ways: member 2 is in use"),
    (DELETE, _group(1), "FAILED_PRECONDITION: I.ways: group 1 is in use"),
    (INSERT, _group(1), "ALREADY_EXISTS: I.ways: group 1 exists"),
    (INSERT, _group(2, (9, 1)), "NOT_FOUND: there is no I.ways: member 9"),
    (INSERT, _group(2, (1, 1), (1, 2)), "INVALID_ARGUMENT: I.ways: group 2: a member appears twice"),
    (INSERT, _group(2, (1, 0)), "INVALID_ARGUMENT: I.ways: weights are 1 or more"),
    (INSERT, _group(2, (1, 2), size=1), "RESOURCE_EXHAUSTED: I.ways: a group of 2; it may have 1"),
    (INSERT, _group(2, size=6), "INVALID_ARGUMENT: I.ways: group 2: max_size 6, of 5"),
    (INSERT, _group(2, size=0), "INVALID_ARGUMENT: I.ways: group 2: max_size is 1 to 5"),
    (INSERT, _group(2, (1, (1, 511))), "INVALID_ARGUMENT: watch_port: there is no port 511"),
    (MODIFY, _group(1, size=4), "INVALID_ARGUMENT: I.ways: group 1: its max_size is 5 for good"),
    (INSERT, _entry(to=0x12, group_id=9), "NOT_FOUND: there is no I.ways: group 9"),
    (INSERT, _entry(to=0x12, member_id=9), "NOT_FOUND: there is no I.ways: member 9"),
    (INSERT, _entry(to=0x12, action_set=[(1, _forward(1))]), "INVALID_ARGUMENT: I.ways has members"),
    (INSERT, _entry(MARKS, group_id=1), "INVALID_ARGUMENT: table I.marks: its entries point to I.hops"),
    (INSERT, _member(1, _forward(1), "I.hops"), "INVALID_ARGUMENT: table I.marks has no action"),
]


def test_what_is_refused_changes_nothing(control):
    _prepared(control)
    entities = (
        p4entity.P4ActionProfileMember("I.ways"),
        p4entity.P4ActionProfileGroup("I.ways"),
        p4entity.P4TableEntry(SPREAD),
    )
    before = [control._read(e) for e in entities]
    for kind, entity, message in REFUSED:
        with pytest.raises(ToolFailed, match=message):
            control._write(kind, entity)
        assert [control._read(e) for e in entities] == before


def test_members_beyond_the_profiles_size(control):
    mark = p4entity.P4TableAction("I.mark", kind=1)
    for number in (1, 2, 3):
        control._write(INSERT, _member(number, mark, "I.hops"))
    with pytest.raises(ToolFailed, match=r"RESOURCE_EXHAUSTED: I\.hops is full: 3 members"):
        control._write(INSERT, _member(4, mark, "I.hops"))
