"""P4Info that does not fit is refused whole; an exception of one frame, call or stream ends nothing else."""

import contextlib
import random

import pytest
from finsy.proto import p4i, p4r, rpc_code

from fanin.p4.control import Exact, TableEntry
from fanin.sim.switch.service.packets import ControllerPackets
from tests.sim.switch.service.client import (
    INSERT,
    INVALID,
    LIMIT,
    METERED,
    Bidder,
    Client,
    Set,
    statuses_of,
    write_request,
)
from tests.sim.switch.service.served import SELECTED, Served, frame_to
from tests.sim.switch.service.test_fuzz import Writer, damaged
from tests.support import new_seed, slow

INTERNAL = rpc_code.INTERNAL


def _table(info, name):
    return next(table for table in info.tables if table.preamble.name == name)


def _metadata(info):
    return info.controller_packet_metadata[0].metadata


#: Changes of METERED's P4Info: none of them is of the program.
WRONG = {
    "negative width of metadata": lambda info: setattr(_metadata(info)[0], "bitwidth", -1),
    "huge width of metadata": lambda info: setattr(_metadata(info)[0], "bitwidth", 2**31 - 1),
    "two fields of metadata with one id": lambda info: setattr(_metadata(info)[1], "id", _metadata(info)[0].id),
    "metadata with the id 0": lambda info: setattr(_metadata(info)[0], "id", 0),
    "a header twice": lambda info: info.controller_packet_metadata.add(preamble={"id": 5, "name": "packet_in"}),
    "width of a key": lambda info: setattr(_table(info, "I.stations").match_fields[0], "bitwidth", 47),
    "match type of a key": lambda info: setattr(_table(info, "I.stations").match_fields[0], "match_type", 3),
    "a key with the id 0": lambda info: setattr(_table(info, "I.stations").match_fields[0], "id", 0),
    "two keys with one id": lambda info: setattr(_table(info, "I.filter").match_fields[1], "id", 1),
    "width of a parameter": lambda info: setattr(
        next(a for a in info.actions if a.params).params[0], "bitwidth", 99
    ),
    "a parameter with the id 0": lambda info: setattr(
        next(a for a in info.actions if a.params).params[0], "id", 0
    ),
    "a table twice": lambda info: info.tables.add(preamble={"id": 5, "name": "I.stations"}),
    "an action that P4Info lacks": lambda info: setattr(_table(info, "I.stations").action_refs[0], "id", 5),
    "an action of another table": lambda info: setattr(
        _table(info, "I.choose").action_refs[0], "id", _table(info, "I.stations").action_refs[0].id
    ),
    "an action twice": lambda info: setattr(
        _table(info, "I.stations").action_refs[0], "id", _table(info, "I.stations").action_refs[1].id
    ),
    "an unknown scope": lambda info: setattr(_table(info, "I.stations").action_refs[0], "scope", 9),
    "an action profile": lambda info: setattr(_table(info, "I.stations"), "implementation_id", 5),
    "cells of a counter": lambda info: setattr(info.counters[0], "size", 2**40),
    "cells of a meter": lambda info: setattr(info.meters[0], "size", -1),
    "cells of a register": lambda info: setattr(info.registers[0], "size", 9),
    "table of a direct meter": lambda info: setattr(info.direct_meters[0], "direct_table_id", 5),
    "table of a direct counter": lambda info: setattr(
        info.direct_counters[0], "direct_table_id", _table(info, "I.route").preamble.id
    ),
}
WRONG_PROFILES = {
    "no action profile": lambda info: _table(info, "I.spread").ClearField("implementation_id"),
    "another action profile": lambda info: setattr(
        _table(info, "I.spread"), "implementation_id", _table(info, "I.marks").implementation_id
    ),
    "table of a profile": lambda info: info.action_profiles[0].table_ids.append(
        _table(info, "I.known").preamble.id
    ),
    "size of a group": lambda info: setattr(info.action_profiles[0], "max_group_size", -1),
    "weight of a member": lambda info: setattr(info.action_profiles[0].sum_of_members, "max_member_weight", -1),
}


@pytest.fixture(scope="module")
def clients():
    with contextlib.ExitStack() as opened:
        found = []
        for text in (METERED, SELECTED):
            served = opened.enter_context(contextlib.closing(Served(text)))
            found.append(opened.enter_context(contextlib.closing(Client(served))))
        yield found


@pytest.mark.parametrize("wrong", [*WRONG, *WRONG_PROFILES])
def test_p4info_is_checked_whole_before_it_replaces_anything(clients, wrong):
    client = clients[wrong in WRONG_PROFILES]
    info = p4i.P4Info.FromString(client.info.SerializeToString())
    assert client.configure(Set.VERIFY, config={"p4info": info}) == 0
    (WRONG | WRONG_PROFILES)[wrong](info)
    for action in (Set.VERIFY, Set.VERIFY_AND_SAVE, Set.VERIFY_AND_COMMIT):
        assert client.configure(action, config={"p4info": info}) == INVALID
    before = client.info
    client.refresh()
    assert client.info == before


@pytest.mark.parametrize(
    ("text", "rounds"),
    [(METERED, 15), (SELECTED, 15), *slow((METERED, 2000), (SELECTED, 2000))],
    ids=["metered", "selected", "metered-long", "selected-long"],
)
def test_no_damaged_p4info_breaks_what_comes_after_it(text, rounds):
    """Whatever is accepted serves writes, reads, packets and frames without an internal error."""
    seed = new_seed()
    rng = random.Random(seed)
    with contextlib.closing(Served(text)) as served, contextlib.closing(Client(served)) as client:
        whole = client.info
        accepted = 0
        for number in range(rounds):
            info = damaged(whole, rng)
            accepted += not client.configure(Set.VERIFY_AND_COMMIT, config={"p4info": info})
            writer = Writer(whole, rng)
            updates = [writer.update() for _ in range(8)]
            codes = statuses_of(client.stub.Write, write_request(updates))
            kinds = ("table_entry", "counter_entry", "register_entry", "meter_entry", "direct_meter_entry")
            wanted = [p4r.Entity(), *map(_all_of, kinds)]
            assert INTERNAL not in (*codes, *client.read(*wanted)[1]), seed
            client.send(packet=p4r.PacketOut(payload=frame_to(number), metadata=_some_metadata(rng)))
            served.send(0, frame_to(rng.randrange(4), source=rng.randrange(4)))
        assert accepted, seed
        assert served.forwarding.run_in_loop(lambda: served.forwarding.failed) == 0, (seed, served.said)


def _all_of(kind):
    entity = p4r.Entity()
    getattr(entity, kind).SetInParent()
    return entity


def _some_metadata(rng):
    numbers = rng.sample((1, 2, 3), rng.randrange(4))
    return [p4r.PacketMetadata(metadata_id=n, value=rng.randbytes(rng.randrange(3))) for n in numbers]


# exceptions that nobody foresaw


def _fail(*args):
    raise KeyError("of a\ntest")


def _works(served, client):
    """Whether frames and requests still pass; how often something failed, and what was reported."""
    entry = TableEntry("I.stations", {"hdr.ethernet.destination": Exact(0x10)}, "I.forward", {"port": 1})
    served.forwarding.run_in_loop(lambda: served.forwarding.switch.insert(entry))
    served.send(0, frame_to(0x10))
    assert served.receive(1) == frame_to(0x10)
    assert len(client.entries(table_id=client.id("I.stations"))) == 1
    served.forwarding.run_in_loop(lambda: None)
    (said,) = served.said
    assert "\n" not in said
    assert "KeyError" in said
    return served.forwarding.failed


def test_an_exception_of_a_frame_costs_this_frame(served, client, monkeypatch):
    process = served.forwarding.switch.process
    bad = frame_to(0x99)
    monkeypatch.setattr(
        served.forwarding.switch,
        "process",
        lambda port, frame: process(port, frame) if frame != bad else _fail(),
    )
    for _ in range(3):
        served.send(0, bad)
    assert _works(served, client) == 3


def test_an_exception_on_the_way_to_the_controller_costs_this_frame(served, client, monkeypatch):
    entry = client.station(b"\x20", action=client.call("I.to_controller"))
    assert client.write(INSERT, table_entry=entry) == 0
    monkeypatch.setattr(ControllerPackets, "packet_of", _fail)
    served.send(0, frame_to(0x20))
    served.forwarding.run_in_loop(lambda: None)
    monkeypatch.undo()
    served.send(0, frame_to(0x20))
    assert client.receive().packet.payload == frame_to(0x20)
    client.write(p4r.Update.DELETE, table_entry=entry)
    assert _works(served, client) == 1


def test_an_exception_of_a_packet_of_the_controller_is_answered(served, client, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(served.forwarding.switch, "process", _fail)
        message = p4r.PacketOut(
            payload=b"x" * 60, metadata=[{"metadata_id": n, "value": b"\1"} for n in (1, 2)]
        )
        client.send(packet=message)
        error = client.receive().error
    assert (error.canonical_code, error.packet_out.packet_out) == (INTERNAL, message)
    assert _works(served, client) == 1


@pytest.mark.parametrize("hook", ["timer", "watch"])
def test_an_exception_of_what_the_loop_calls_ends_nothing(served, client, hook):
    def set_hook():
        if hook == "timer":
            served.forwarding.timer = _fail
            served.forwarding.wake(0.0)
        else:
            served.forwarding.watch_ports(_fail)

    served.forwarding.run_in_loop(set_hook)
    assert _works(served, client) == 1


def test_an_exception_of_an_update_is_answered_and_the_batch_continues(served, client, monkeypatch):
    writers = served.service._pipelines.entities._writers
    monkeypatch.setitem(writers, "counter_entry", _fail)
    counter = p4r.Update(type=INSERT, entity=p4r.Entity(counter_entry=p4r.CounterEntry()))
    entry = p4r.Update(type=INSERT, entity=p4r.Entity(table_entry=client.station(b"\x05")))
    assert statuses_of(client.stub.Write, write_request([counter, entry])) == [INTERNAL, 0]
    assert client.write(p4r.Update.DELETE, table_entry=client.station(b"\x05")) == 0
    assert _works(served, client) == 1


def test_an_exception_of_a_call_is_answered(served, client, monkeypatch):
    monkeypatch.setattr(served.service._pipelines, "check", _fail)
    assert client.configure(Set.COMMIT) == INTERNAL
    assert _works(served, client) == 1


def test_an_exception_of_a_stream_message_is_answered_and_the_stream_stays(served, client, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(ControllerPackets, "frame_of", _fail)
        client.send(packet=p4r.PacketOut(payload=b"x"))
        error = client.receive().error
    assert (error.canonical_code, error.packet_out.packet_out.payload) == (INTERNAL, b"x")
    client.send(packet=p4r.PacketOut(payload=b"x"))
    assert client.receive().error.canonical_code == INVALID
    assert _works(served, client) == 1


def test_an_exception_of_a_bid_ends_its_stream_alone(served, client, monkeypatch):
    with contextlib.closing(Bidder(served.address)) as other:
        with monkeypatch.context() as patched:
            patched.setattr(served.service.controllers, "bid", _fail)
            other.bid(5)
            assert other._answers.get(timeout=LIMIT).code().value[0] == INTERNAL
        assert _works(served, client) == 1
