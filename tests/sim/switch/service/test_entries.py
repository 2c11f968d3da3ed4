"""P4Runtime: table entries and default entries (docs/reference/p4runtime.md)."""

import contextlib

import pytest
from finsy.proto import p4r

from tests.sim.switch.service.client import (
    DELETE,
    DENIED,
    INSERT,
    INVALID,
    MODIFY,
    NOT_FOUND,
    Client,
)
from tests.sim.switch.service.served import SELECTED, Served

# table entries


def test_what_is_written_is_read(client):
    entry = client.station(b"\x05", metadata=b"m", controller_metadata=3)
    assert client.write(INSERT, table_entry=entry) == 0
    assert client.entries(table_id=entry.table_id) == [entry]


def test_a_deletion_looks_at_the_key_alone(client):
    assert client.write(INSERT, table_entry=client.station(b"\x05")) == 0
    nonsense = client.station(b"\x05", action=p4r.TableAction(action_profile_member_id=3), idle_timeout_ns=-1)
    assert client.write(DELETE, table_entry=nonsense) == 0
    assert client.write(DELETE, table_entry=nonsense) == NOT_FOUND


@pytest.mark.parametrize(
    ("name", "values", "code"),
    [
        ("I.forward", [], INVALID),
        ("I.forward", [b"\x01", b"\x01"], INVALID),
        ("NoAction", [], INVALID),  # not this table's
        ("I.drop", [], DENIED),  # for the default alone
    ],
)
def test_an_action_is_one_of_the_tables_with_all_its_parameters(shared, name, values, code):
    entry = shared.station(b"\x01", action=shared.call(name, *values))
    assert shared.write(INSERT, table_entry=entry) == code


def test_an_insertion_needs_an_action_and_the_form_of_the_table(shared):
    for action in (p4r.TableAction(), p4r.TableAction(action_profile_member_id=1)):
        assert shared.write(INSERT, table_entry=shared.station(b"\x01", action=action)) == INVALID
    entry = shared.station(b"\x01")
    entry.ClearField("action")
    assert shared.write(INSERT, table_entry=entry) == INVALID


@pytest.mark.parametrize("kind", [INSERT, MODIFY, DELETE])
def test_a_controller_cannot_say_that_an_entry_is_constant(shared, kind):
    assert shared.write(kind, table_entry=shared.station(b"\x01", is_const=True)) == INVALID


def test_constant_entries_stay(shared):
    table = shared.id("I.fixed")
    (entry,) = shared.entries(table_id=table)
    assert (entry.is_const, entry.match[0].exact.value) == (True, b"\xde\xad")
    key = {"table_id": table, "match": list(entry.match)}
    assert shared.write(DELETE, table_entry=p4r.TableEntry(**key)) == DENIED
    assert shared.write(MODIFY, table_entry=p4r.TableEntry(**key, action=entry.action)) == DENIED
    assert shared.write(MODIFY, table_entry=p4r.TableEntry(**key, metadata=b"m")) == DENIED
    assert shared.write(MODIFY, table_entry=p4r.TableEntry(**key)) == 0  # changes nothing


def test_a_default_entry_is_modified_alone_and_goes_back(client):
    table = client.id("I.stations")
    entry = p4r.TableEntry(
        table_id=table, is_default_action=True, metadata=b"m", action=client.call("I.forward", b"\x01")
    )
    assert [client.write(kind, table_entry=entry) for kind in (INSERT, DELETE, MODIFY)] == [INVALID, INVALID, 0]
    assert client.entries(table_id=table, is_default_action=True) == [entry]
    assert client.write(MODIFY, table_entry=p4r.TableEntry(table_id=table, is_default_action=True)) == 0
    (found,) = client.entries(table_id=table, is_default_action=True)
    assert (found.metadata, found.action.action.action_id) == (b"", client.id("I.drop"))
    for wrong in ({"priority": 1}, {"match": list(client.station(b"\x01").match)}, {"idle_timeout_ns": 1}):
        entry = p4r.TableEntry(table_id=table, is_default_action=True, **wrong)
        assert client.write(MODIFY, table_entry=entry) == INVALID


def test_a_default_action_is_within_its_scope(shared):
    table = shared.id("I.route")
    action = shared.call("I.spread", b"\x01")  # @tableonly
    entry = p4r.TableEntry(table_id=table, is_default_action=True, action=action)
    assert shared.write(MODIFY, table_entry=entry) == DENIED


def test_idle_times_are_of_tables_that_have_them():
    with contextlib.closing(Served(SELECTED)) as served, contextlib.closing(Client(served)) as client:
        known, spread = client.id("I.known"), client.id("I.spread")
        since = p4r.TableEntry.IdleTimeout(elapsed_ns=0)
        for fields in ({"table_id": spread}, {"table_id": known, "is_default_action": True}):
            asked = p4r.TableEntry(time_since_last_hit=since, **fields)
            assert client.read(p4r.Entity(table_entry=asked))[1] == [INVALID]
        default = p4r.TableEntry(table_id=known, is_default_action=True, idle_timeout_ns=1)
        assert client.write(MODIFY, table_entry=default) == INVALID
        indirect = p4r.TableEntry(
            table_id=spread, is_default_action=True, action=client.call("I.forward", b"\x01")
        )
        assert client.write(MODIFY, table_entry=indirect) == DENIED
