"""P4Runtime: counters, meters, registers, groups, sessions (docs/reference/p4runtime.md)."""

import contextlib

import pytest
from finsy.proto import p4r, rpc_code

from fanin.p4.control import Replica
from tests.sim.switch.service.client import (
    DELETE,
    INSERT,
    INVALID,
    MISSING,
    MODIFY,
    NOT_FOUND,
    RANGE,
    Client,
    statuses_of,
    write_request,
)
from tests.sim.switch.service.served import SELECTED, Served

# counters


def _counted(packets):
    return p4r.CounterData(packet_count=packets, byte_count=10 * packets)


def test_a_counter_is_only_changed_by_data(client):
    key = {"counter_id": client.id("I.by_port"), "index": p4r.Index(index=2)}
    assert client.write(MODIFY, counter_entry=p4r.CounterEntry(**key, data=_counted(5))) == 0
    assert client.write(MODIFY, counter_entry=p4r.CounterEntry(**key)) == 0  # unset: as it was
    found, _ = client.read(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=key["counter_id"])))
    assert [e.counter_entry.data.packet_count for e in found] == [0, 0, 5, 0]
    everywhere = p4r.CounterEntry(counter_id=key["counter_id"], data=_counted(7))
    assert client.write(MODIFY, counter_entry=everywhere) == 0
    found, _ = client.read(
        p4r.Entity(counter_entry=p4r.CounterEntry(index=p4r.Index(index=99)))
    )  # all counters
    assert [e.counter_entry.data for e in found] == [_counted(7)] * 4


@pytest.mark.parametrize("kind", [INSERT, DELETE])
def test_cells_are_modified_only(metered, kind):
    for entity in (
        "counter_entry",
        "direct_counter_entry",
        "register_entry",
        "meter_entry",
        "direct_meter_entry",
    ):
        update = p4r.Update(type=kind)
        getattr(update.entity, entity).SetInParent()
        assert statuses_of(metered.stub.Write, write_request([update])) == [INVALID]


@pytest.mark.parametrize(("index", "code"), [(-1, INVALID), (4, RANGE), (3, 0)])
def test_an_index_is_within_its_array(shared, index, code):
    entry = p4r.CounterEntry(counter_id=shared.id("I.by_port"), index=p4r.Index(index=index))
    assert shared.write(MODIFY, counter_entry=entry) == code
    assert shared.read(p4r.Entity(counter_entry=entry))[1] == [code]
    register = p4r.RegisterEntry(register_id=shared.id("I.last"), index=p4r.Index(index=index * 2))
    assert shared.read(p4r.Entity(register_entry=register))[1] == [code]


def test_a_direct_counter_is_of_an_entry(client):
    entry = client.station(b"\x05", counter_data=_counted(3))
    assert client.write(INSERT, table_entry=entry) == 0
    key = p4r.TableEntry(table_id=entry.table_id, match=list(entry.match))
    count = lambda: client.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key)))  # noqa: E731
    assert client.write(MODIFY, direct_counter_entry=p4r.DirectCounterEntry(table_entry=key)) == 0
    assert client.write(MODIFY, table_entry=client.station(b"\x05")) == 0  # unset: as it was
    assert [e.direct_counter_entry.data for e in count()[0]] == [_counted(3)]
    assert (
        client.write(MODIFY, direct_counter_entry=p4r.DirectCounterEntry(table_entry=key, data=_counted(4)))
        == 0
    )
    assert client.entries(table_id=key.table_id) != client.entries(table_id=key.table_id, counter_data={})
    (found,) = client.entries(table_id=key.table_id, counter_data={})
    assert found.counter_data == _counted(4)
    assert client.write(DELETE, table_entry=key) == 0
    assert count() == ([], [NOT_FOUND])
    assert client.write(MODIFY, direct_counter_entry=p4r.DirectCounterEntry(table_entry=key)) == NOT_FOUND


def test_a_table_without_the_direct_resource_refuses_it(shared):
    for extra in ({"counter_data": _counted(1)}, {"meter_config": {}}, {"meter_counter_data": {}}):
        entry = shared.filter(**extra)
        assert shared.write(INSERT, table_entry=entry) == INVALID
    default = p4r.TableEntry(table_id=shared.id("I.stations"), is_default_action=True, counter_data=_counted(1))
    assert shared.write(MODIFY, table_entry=default) == INVALID


# meters


def test_a_meter_takes_the_default_configuration_alone(metered):
    meter = metered.id("I.rate")
    assert metered.write(MODIFY, meter_entry=p4r.MeterEntry(meter_id=meter)) == 0
    assert metered.write(MODIFY, meter_entry=p4r.MeterEntry(meter_id=meter, config={})) == MISSING
    colors = p4r.MeterEntry(meter_id=meter, counter_data={})
    assert metered.write(MODIFY, meter_entry=colors) == MISSING
    assert metered.read(p4r.Entity(meter_entry=colors))[1] == [MISSING]
    for index, code in ((-1, INVALID), (3, RANGE)):
        entry = p4r.MeterEntry(meter_id=meter, index=p4r.Index(index=index))
        assert metered.write(MODIFY, meter_entry=entry) == code
    found, codes = metered.read(p4r.Entity(meter_entry=p4r.MeterEntry()))
    assert codes == [0]
    assert [(e.meter_entry.index.index, e.meter_entry.HasField("config")) for e in found] == [
        (0, False),
        (1, False),
        (2, False),
    ]


def test_a_direct_meter_takes_the_default_configuration_alone(metered):
    lpm = p4r.FieldMatch.LPM(value=b"\x01\x00\x00\x00\x00\x00", prefix_len=8)
    key = p4r.TableEntry(table_id=metered.id("I.route"), match=[p4r.FieldMatch(field_id=1, lpm=lpm)])
    direct = lambda **fields: p4r.DirectMeterEntry(table_entry=key, **fields)  # noqa: E731
    assert metered.write(MODIFY, direct_meter_entry=direct()) == NOT_FOUND
    assert metered.read(p4r.Entity(direct_meter_entry=direct()))[1] == [NOT_FOUND]
    entry = p4r.TableEntry()
    entry.CopyFrom(key)
    entry.action.CopyFrom(metered.call("I.metered"))
    entry.meter_config.cir = 5
    assert metered.write(INSERT, table_entry=entry) == MISSING
    entry.ClearField("meter_config")
    assert metered.write(INSERT, table_entry=entry) == 0
    assert metered.write(MODIFY, direct_meter_entry=direct()) == 0
    assert metered.write(MODIFY, direct_meter_entry=direct(config={})) == MISSING
    found, _ = metered.read(p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry()))
    assert [e.direct_meter_entry for e in found] == [direct()]
    assert metered.entries(table_id=key.table_id, meter_config={}) == [entry]
    asked = p4r.TableEntry(table_id=key.table_id, meter_counter_data={})
    assert metered.read(p4r.Entity(table_entry=asked))[1] == [MISSING]


# registers, groups, sessions


def test_a_register_is_written_whole_without_an_index(client):
    register = client.id("I.last")

    def read(**key):
        entry = p4r.RegisterEntry(register_id=register, **key)
        return [e.register_entry.data.bitstring for e in client.read(p4r.Entity(register_entry=entry))[0]]

    everywhere = p4r.RegisterEntry(register_id=register, data={"bitstring": b"\x07"})
    assert client.write(MODIFY, register_entry=everywhere) == 0
    assert read() == [b"\x07"] * 8
    first = p4r.RegisterEntry(register_id=register, index=p4r.Index(), data={"bitstring": b"\x09"})
    assert client.write(MODIFY, register_entry=first) == 0  # set, and 0
    assert read() == [b"\x09"] + [b"\x07"] * 7
    assert read(index=p4r.Index()) == [b"\x09"]


@pytest.mark.parametrize("kind", [INSERT, MODIFY, DELETE])
def test_no_write_means_all_objects_of_a_kind(shared, kind):
    cells = {"counter_entry", "direct_counter_entry", "register_entry", "meter_entry", "direct_meter_entry"}
    table = {"table_entry", "action_profile_member", "action_profile_group", "digest_entry"}
    for name in sorted(cells | table):
        code = INVALID if name in cells and kind != MODIFY else NOT_FOUND
        entity = p4r.Entity()
        getattr(entity, name).SetInParent()
        update = p4r.Update(type=kind, entity=entity)
        assert statuses_of(shared.stub.Write, write_request([update])) == [code], name
    for replication in (_group(0), _session(0)):
        assert shared.write(kind, packet_replication_engine_entry=replication) == INVALID


def test_a_register_takes_data_of_its_type(shared):
    for name, data in (("I.last", {}), ("I.last", {"bool": True}), ("I.flags", {"bitstring": b"\x01"})):
        entry = p4r.RegisterEntry(register_id=shared.id(name), data=data)
        assert shared.write(MODIFY, register_entry=entry) == INVALID


def _group(number, *replicas, **fields):
    replicas = [p4r.Replica(port=port, instance=instance) for port, instance in replicas]
    group = p4r.MulticastGroupEntry(multicast_group_id=number, replicas=replicas, **fields)
    return p4r.PacketReplicationEngineEntry(multicast_group_entry=group)


def _session(number, *replicas, **fields):
    replicas = [p4r.Replica(port=port, instance=instance) for port, instance in replicas]
    session = p4r.CloneSessionEntry(session_id=number, replicas=replicas, **fields)
    return p4r.PacketReplicationEngineEntry(clone_session_entry=session)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (_group(0, (b"\x01", 1)), INVALID),
        (_group(2**16, (b"\x01", 1)), INVALID),
        (_group(1, (b"\x01", 2**16)), INVALID),
        (_group(1, (b"\x01", 1), (b"\x01", 1)), INVALID),
        (_group(1, (b"", 1)), RANGE),
        (_session(0, (b"\x01", 1)), INVALID),
        (_session(1, (b"\x01", 2**16)), INVALID),
        (_session(1, (b"\x01", 1), packet_length_bytes=64), MISSING),
        (p4r.PacketReplicationEngineEntry(), INVALID),
    ],
)
def test_a_group_or_session_that_cannot_be_is_refused(shared, entry, code):
    assert shared.write(INSERT, packet_replication_engine_entry=entry) == code


@pytest.mark.parametrize("make", [_group, _session])
def test_a_group_or_session_reads_as_it_was_written(client, make):
    entry = make(3, (b"\x01", 0), (b"\x01", 2))
    entry.multicast_group_entry.metadata = b"m" if make is _group else b""
    entry = entry if make is _group else make(3, (b"\x01", 0), (b"\x01", 2), class_of_service=4)
    read = lambda number: [  # noqa: E731
        e.packet_replication_engine_entry
        for e in client.read(p4r.Entity(packet_replication_engine_entry=make(number)))[0]
    ]
    write = lambda kind, entry: client.write(kind, packet_replication_engine_entry=entry)  # noqa: E731
    assert write(MODIFY, entry) == write(DELETE, entry) == NOT_FOUND
    assert (write(INSERT, entry), write(INSERT, entry)) == (0, rpc_code.ALREADY_EXISTS)
    assert read(3) == read(0) == [entry]
    assert write(MODIFY, make(3, (b"\x00\x02", 0))) == 0
    assert read(0) == [make(3, (b"\x02", 0))]  # the port in canonical form
    assert write(DELETE, make(3)) == 0
    assert read(0) == []


def test_a_clone_session_of_the_entries_is_read_replaced_and_deleted(served, client):
    served.forwarding.run_in_loop(
        lambda: served.forwarding.switch.set_clone_session(3, replicas=[Replica(2, 5)])
    )
    wanted = p4r.CloneSessionEntry(session_id=3)
    found = client.read(p4r.Entity(packet_replication_engine_entry={"clone_session_entry": wanted}))[0]
    (session,) = (entity.packet_replication_engine_entry.clone_session_entry for entity in found)
    assert [(one.egress_port, one.instance) for one in session.replicas] == [(2, 5)]
    entry = p4r.PacketReplicationEngineEntry(clone_session_entry=session)
    codes = [client.write(kind, packet_replication_engine_entry=entry) for kind in (INSERT, MODIFY, DELETE)]
    assert codes == [rpc_code.ALREADY_EXISTS, 0, 0]
    assert client.write(DELETE, packet_replication_engine_entry=entry) == NOT_FOUND


def test_groups_and_action_sets_read_in_canonical_form():
    with contextlib.closing(Served(SELECTED)) as served, contextlib.closing(Client(served)) as client:
        ways = client.info.action_profiles[0].preamble.id
        assert client.info.action_profiles[0].with_selector
        match = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x01"))]
        shot = client.call("I.forward", b"\x00\x00\x02").action
        action = p4r.ActionProfileAction(action=shot, weight=1, watch_port=b"\x00\x01")
        actions = p4r.TableAction(action_profile_action_set={"action_profile_actions": [action]})
        entry = p4r.TableEntry(table_id=client.id("I.spread"), match=match, action=actions)
        assert client.write(INSERT, table_entry=entry) == 0
        (found,) = client.entries(table_id=entry.table_id)
        (item,) = found.action.action_profile_action_set.action_profile_actions
        assert (item.action.params[0].value, item.watch_port) == (b"\x02", b"\x01")
        assert client.write(DELETE, table_entry=entry) == 0
        member = p4r.ActionProfileMember(action_profile_id=ways, member_id=1, action=shot)
        assert client.write(INSERT, action_profile_member=member) == 0
        watched = p4r.ActionProfileGroup.Member(member_id=1, weight=1, watch_port=b"\x00\x02")
        group = p4r.ActionProfileGroup(action_profile_id=ways, group_id=1, max_size=2, members=[watched])
        assert client.write(INSERT, action_profile_group=group) == 0
        found, _ = client.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup()))
        assert found[0].action_profile_group.members[0].watch_port == b"\x02"
