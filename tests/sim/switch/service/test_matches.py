"""P4Runtime: unset fields, bytestrings, matches, wildcard reads (docs/reference/p4runtime.md)."""

import pytest
from finsy.proto import p4r

from tests.sim.switch.service.client import (
    DELETE,
    INSERT,
    INVALID,
    NOT_FOUND,
    RANGE,
)

# default and unset fields


def test_an_entity_of_no_type_is_refused(shared):
    assert shared.write(INSERT) == INVALID
    assert shared.read(p4r.Entity()) == ([], [INVALID])


def test_an_update_of_no_type_is_refused(shared):
    assert shared.write(p4r.Update.UNSPECIFIED, table_entry=shared.station(b"\x01")) == INVALID


def test_a_read_goes_on_after_a_fault_and_names_each(client):
    assert client.write(INSERT, table_entry=client.station(b"\x05")) == 0
    good = p4r.Entity(table_entry=p4r.TableEntry(table_id=client.id("I.stations")))
    bad = p4r.Entity(table_entry=p4r.TableEntry(table_id=99))
    found, codes = client.read(good, bad, good, p4r.Entity())
    assert codes == [0, NOT_FOUND, 0, INVALID]
    assert [entity.table_entry.match[0].exact.value for entity in found] == [b"\x05", b"\x05"]


def test_a_whole_switch_is_read_by_empty_entities(shared):
    kinds = [
        "extern_entry", "table_entry", "action_profile_member", "action_profile_group", "meter_entry",
        "direct_meter_entry", "counter_entry", "direct_counter_entry", "packet_replication_engine_entry",
        "value_set_entry", "register_entry", "digest_entry",
    ]  # fmt: skip
    entities = []
    for kind in kinds:
        entity = p4r.Entity()
        getattr(entity, kind).SetInParent()
        entities.append(entity)
    found, codes = shared.read(*entities)
    assert codes == [0]
    assert {entity.WhichOneof("entity") for entity in found} == {
        "table_entry",
        "counter_entry",
        "register_entry",
    }
    assert shared.read(p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=1)))[1] == [NOT_FOUND]
    assert shared.read(p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=1)))[1] == [NOT_FOUND]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"\x00\x00\x00\x01", 0),  # longer than it need be
        (b"\x01\xff", 0),  # 511, of 9 bits
        (b"\x02\x00", RANGE),
        (b"", RANGE),
    ],
)
def test_a_bytestring_has_any_length_and_must_fit(client, value, code):
    assert client.write(INSERT, table_entry=client.station(b"\x00\x07", value)) == code
    canonical = value.lstrip(b"\0")
    found = client.entries(table_id=client.id("I.stations"))
    parts = [(e.match[0].exact.value, e.action.action.params[0].value) for e in found]
    assert parts == ([] if code else [(b"\x07", canonical)])


def _ternary(value, mask):
    return p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=value, mask=mask))


def _range(low, high):
    return p4r.FieldMatch(field_id=2, range=p4r.FieldMatch.Range(low=low, high=high))


@pytest.mark.parametrize(
    ("match", "code"),
    [
        ([], 0),
        ([_ternary(b"\x10", b"\xf0")], 0),
        ([_ternary(b"\x00", b"\x00")], INVALID),  # matches all: is left out
        ([_ternary(b"\x11", b"\xf0")], INVALID),  # bits beyond the mask
        ([_ternary(b"\x10", b"\xf0")] * 2, INVALID),
        ([_range(b"\x05", b"\x05")], 0),
        ([_range(b"\x06", b"\x05")], INVALID),
        ([_range(b"\x00", b"\xff\xff")], INVALID),  # matches all
        ([p4r.FieldMatch(field_id=9, exact=p4r.FieldMatch.Exact(value=b"\x01"))], INVALID),
        ([p4r.FieldMatch(field_id=1)], INVALID),
        ([p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x01"))], INVALID),
    ],
)
def test_a_match_has_one_form(shared, match, code):
    entry = shared.filter(*match)
    assert shared.write(INSERT, table_entry=entry) == code
    if not code:
        assert shared.write(DELETE, table_entry=entry) == 0


@pytest.mark.parametrize(("length", "code"), [(0, INVALID), (8, 0), (7, INVALID), (49, INVALID), (-1, INVALID)])
def test_a_prefix_has_one_form(shared, length, code):
    lpm = p4r.FieldMatch.LPM(value=b"\x01\x00\x00\x00\x00\x00", prefix_len=length)
    entry = p4r.TableEntry(
        table_id=shared.id("I.route"),
        match=[p4r.FieldMatch(field_id=1, lpm=lpm)],
        action=shared.call("NoAction"),
    )
    assert shared.write(INSERT, table_entry=entry) == code
    if not code:
        assert shared.write(DELETE, table_entry=entry) == 0


def test_an_exact_key_cannot_be_left_out(shared):
    assert shared.write(INSERT, table_entry=shared.filter(valid=False)) == INVALID


def test_a_priority_is_set_where_the_key_needs_it_and_only_there(shared):
    assert shared.write(INSERT, table_entry=shared.filter(priority=0)) == INVALID
    assert shared.write(INSERT, table_entry=shared.filter(priority=-1)) == INVALID
    assert shared.write(INSERT, table_entry=shared.station(b"\x01", priority=1)) == INVALID


def test_a_read_is_filtered_by_match_priority_action_and_metadata(client):
    for priority, metadata in ((1, b"a"), (2, b"b")):
        assert client.write(INSERT, table_entry=client.filter(priority=priority, metadata=metadata)) == 0
    other = client.filter(_ternary(b"\x10", b"\xf0"), priority=2, action=client.call("NoAction"))
    assert client.write(INSERT, table_entry=other) == 0
    table = client.id("I.filter")
    key = list(client.filter().match)
    priorities = lambda **fields: sorted(e.priority for e in client.entries(table_id=table, **fields))  # noqa: E731
    assert priorities() == [1, 2, 2]
    assert priorities(match=key) == [1, 2]  # no priority: any
    assert priorities(match=key, priority=2) == [2]
    assert priorities(priority=2) == [2, 2]
    assert priorities(metadata=b"a") == [1]
    assert priorities(action=client.call("NoAction")) == [2]


def test_a_priority_does_not_filter_prefixes_by_their_length(client):
    lpm = p4r.FieldMatch.LPM(value=b"\x01\x00\x00\x00\x00\x00", prefix_len=8)
    table, match = client.id("I.route"), [p4r.FieldMatch(field_id=1, lpm=lpm)]
    entry = p4r.TableEntry(table_id=table, match=match, action=client.call("NoAction"))
    assert client.write(INSERT, table_entry=entry) == 0
    assert client.entries(table_id=table, priority=8) == []
    assert len(client.entries(table_id=table)) == 1
