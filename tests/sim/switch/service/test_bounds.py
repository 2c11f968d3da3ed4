"""Bounds on a hostile controller: what it can store, and numbers and counts far beyond their width."""

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from finsy.proto import p4r, rpc_code

from fanin.sim.switch.service import entities
from fanin.sim.switch.service.profiles import MIN_GROUPS
from fanin.sim.switch.service.protobuf import prefix
from tests.sim.switch.service.client import (
    INSERT,
    INVALID,
    LIMIT,
    MODIFY,
    RANGE,
    Bidder,
    Client,
    statuses_of,
    write_request,
)
from tests.sim.switch.service.served import SELECTED, Served, frame_to

FULL = rpc_code.RESOURCE_EXHAUSTED
LONG = bytes([1]) * 20_000  # a number that ``str`` refuses
UNKNOWN_FIELD = prefix(99, 1000) + bytes(1000)
STREAMS = 4


@pytest.fixture
def selected():
    with contextlib.closing(Served(SELECTED)) as served, contextlib.closing(Client(served)) as client:
        yield client


def _profile(client):
    return client.info.action_profiles[0].preamble.id


def _threads(process):
    return len(list(Path(f"/proc/{process}/task").iterdir()))


def _cancel_while_a_request_waits(served):
    """Open streams whose bids wait for a write; cancel them while each has a further request in the front."""
    bidders = [Bidder(served.address) for _ in range(STREAMS)]
    for bidder in bidders:
        bidder.bid()
        bidder.send(digest_ack=p4r.DigestListAck(digest_id=1))
    time.sleep(0.5)  # the front has read the second request, and its thread waits
    for bidder in bidders:
        bidder.close()


def test_a_cancelled_stream_leaves_no_thread_and_no_request_in_the_front(served):
    order, write_in_progress = served.service._order, SimpleNamespace(wake=lambda: None)
    served.forwarding.run_in_loop(lambda: order._queue.append(write_in_progress))
    process = served.server._process.pid
    _cancel_while_a_request_waits(served)  # starts the threads that the front keeps for calls
    end = time.monotonic() + LIMIT
    counts = []
    for _ in range(4):
        time.sleep(0.5)
        counts.append(_threads(process))
        _cancel_while_a_request_waits(served)
    while (count := _threads(process)) >= counts[0] + STREAMS and time.monotonic() < end:
        time.sleep(0.1)
    assert count < counts[0] + STREAMS
    served.forwarding.run_in_loop(lambda: order._queue.remove(write_in_progress))


def test_a_selector_has_a_bounded_number_of_groups_without_members(selected):
    groups = [
        p4r.ActionProfileGroup(action_profile_id=_profile(selected), group_id=number, max_size=1)
        for number in range(1, MIN_GROUPS + 3)
    ]
    updates = [p4r.Update(type=INSERT, entity={"action_profile_group": group}) for group in groups]
    assert statuses_of(selected.stub.Write, write_request(updates[:MIN_GROUPS])) == [0]
    assert statuses_of(selected.stub.Write, write_request(updates[MIN_GROUPS:])) == [FULL, FULL]


def test_unknown_fields_of_stored_messages_are_dropped(selected):
    group = p4r.ActionProfileGroup(action_profile_id=_profile(selected), group_id=1, max_size=1)
    written = p4r.ActionProfileGroup.FromString(group.SerializeToString() + UNKNOWN_FIELD)
    assert written.ByteSize() > len(UNKNOWN_FIELD)
    assert selected.write(INSERT, action_profile_group=written) == 0
    (found,), _ = selected.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup()))
    assert found.action_profile_group == group


def test_clone_sessions_have_a_bounded_number(client, monkeypatch):
    monkeypatch.setattr(entities, "MAX_SESSIONS", 2)
    sessions = [{"clone_session_entry": {"session_id": number}} for number in (1, 2, 2**32 - 1)]
    assert [client.write(INSERT, packet_replication_engine_entry=one) for one in sessions] == [0, 0, FULL]
    assert client.write(MODIFY, packet_replication_engine_entry=sessions[0]) == 0


@pytest.mark.parametrize("kind", ["multicast_group", "clone_session"])
def test_groups_and_sessions_are_read_one_by_one(served, client, kind):
    """A list of all of them at once would stop frames; each is looked up in its turn."""
    entries = [{f"{kind}_entry": {f"{kind.removeprefix('clone_')}_id": number}} for number in (1, 2, 3)]
    assert [client.write(INSERT, packet_replication_engine_entry=entry) for entry in entries] == [0, 0, 0]

    def read_and_delete():
        steps = served.service._pipelines.entities.read(p4r.Entity(packet_replication_engine_entry={}))
        first = next(steps)
        getattr(served.forwarding.switch, f"delete_{kind}")(3)
        return [first, *steps]

    found = [
        entity.packet_replication_engine_entry for entity in served.forwarding.run_in_loop(read_and_delete)
    ]
    assert found == [p4r.PacketReplicationEngineEntry(**entry) for entry in entries[:2]]


def test_a_number_of_thousands_of_digits_is_refused_by_its_size(served, client):
    entry = p4r.RegisterEntry(register_id=client.id("I.last"), index={"index": 0}, data={"bitstring": LONG})
    assert client.write(MODIFY, register_entry=entry) == RANGE
    assert client.write(INSERT, table_entry=client.station(LONG)) == RANGE
    client.send(packet={"payload": bytes(60), "metadata": [{"metadata_id": 1, "value": LONG},
                                                            {"metadata_id": 2, "value": b"\x01"}]})  # fmt: skip
    error = client.receive().error
    assert error.canonical_code == INVALID
    assert error.message == "port: a number of 159993 bits does not fit in 9 bits"
    assert (served.forwarding.failed, served.said) == (0, [])


def test_a_counter_beyond_64_bits_wraps_and_can_still_be_read(served, client):
    largest = p4r.CounterData(packet_count=2**63 - 1, byte_count=2**63 - 1)
    cell = p4r.CounterEntry(counter_id=client.id("I.by_port"), index={"index": 0}, data=largest)
    assert client.write(MODIFY, counter_entry=cell) == 0
    assert client.write(INSERT, table_entry=client.station(b"\x10", counter_data=largest)) == 0
    served.send(0, frame_to(0x10))
    served.receive(1)
    found, codes = client.read(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=cell.counter_id)))
    assert codes == [0]
    assert found[0].counter_entry.data.packet_count == -(2**63)
    (entry,) = client.entries(table_id=client.id("I.stations"), counter_data=p4r.CounterData())
    assert entry.counter_data.packet_count == -(2**63)
    direct = p4r.DirectCounterEntry(table_entry={"table_id": client.id("I.stations")})
    (found,), codes = client.read(p4r.Entity(direct_counter_entry=direct))
    assert (found.direct_counter_entry.data.packet_count, codes) == (-(2**63), [0])
