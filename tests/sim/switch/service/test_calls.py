"""Calls in slices: cancelled calls stop, silent clients are ended, answers are bounded, order is kept."""

import contextlib
import gc
import socket
import threading
import time

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from fanin.sim.switch.embedded import load
from fanin.sim.switch.service import calls, entities
from fanin.sim.switch.service.calls import STREAM_WINDOW, WINDOW, Calls, Method
from fanin.sim.switch.service.faults import Fault
from fanin.sim.switch.service.link import FRAGMENT_BYTES, Kind, Link, pair, receive
from tests.sim.switch.service.client import (
    DELETE,
    DEVICE,
    INSERT,
    LIMIT,
    MODIFY,
    Bidder,
    Client,
    status_of,
    statuses_of,
    write_request,
)
from tests.sim.switch.service.served import TEXT, Served, frame_to

CELLS = 40_000
SOON = 8.0  # seconds; a client that does nothing is ended after 10
WIDE = TEXT.replace("register<bit<48>>(8) last;", f"register<bit<48>>({CELLS}) last;").replace(
    "size = 4;", "size = 20000;"
)
#: A client that buffers 64 KiB of answers; gRPC's own windows grow with the rate.
NARROW = [("grpc.http2.bdp_probe", 0)]
ALL_CELLS = p4r.ReadRequest(device_id=DEVICE, entities=[{"register_entry": {}}])


@pytest.fixture
def wide():
    with contextlib.closing(Served(WIDE)) as served:
        yield served


def _until(condition, limit=LIMIT):
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def _under_way(served, group):
    """Calls of a group, as the loop's thread sees them."""
    return served.forwarding.run_in_loop(
        lambda: [call for call in served.server._calls._calls.values() if call.method.group == group]
    )


def test_a_call_that_is_cancelled_stops(wide):
    with contextlib.closing(Client(wide)) as client:
        answers = client.stub.Read(ALL_CELLS)
        assert len(next(answers).entities) > 1
        assert len(_under_way(wide, "reads")) == 1
        answers.cancel()
        _until(lambda: not _under_way(wide, "reads"), SOON)
        updates = [
            p4r.Update(type=INSERT, entity={"table_entry": client.station(n.to_bytes(6, "big"))})
            for n in range(1, 8_000)
        ]
        write = client.stub.Write.future(write_request(updates))
        table = wide.forwarding.switch.table("I.stations")
        _until(lambda: wide.forwarding.run_in_loop(lambda: len(table)))
        write.cancel()
        _until(lambda: not _under_way(wide, "writes"), SOON)
        count = wide.forwarding.run_in_loop(lambda: len(table))
        assert 0 < count < len(updates)
        assert client.write(INSERT, table_entry=client.station(b"\xff" * 6)) == 0  # the next one's turn
        assert wide.forwarding.run_in_loop(lambda: len(table)) == count + 1


def test_answers_have_bounded_bytes_and_wait_for_a_reader(wide):
    with contextlib.closing(Client(wide, NARROW)) as client:
        answers = client.stub.Read(ALL_CELLS)
        first = next(answers)
        assert FRAGMENT_BYTES - 100 <= first.ByteSize() <= FRAGMENT_BYTES + 100
        _until(lambda: _under_way(wide, "reads")[0].in_flight >= WINDOW)
        (call,) = _under_way(wide, "reads")
        time.sleep(0.1)
        assert WINDOW <= call.in_flight <= WINDOW + FRAGMENT_BYTES + 100
        found = [first, *answers]
    assert max(answer.ByteSize() for answer in found) <= FRAGMENT_BYTES + 100
    indices = [e.register_entry.index.index for answer in found for e in answer.entities]
    assert sorted(indices) == sorted([*range(CELLS), *range(2), *range(2)])


def test_a_reader_that_does_not_read_is_ended(wide, monkeypatch):
    with contextlib.closing(Client(wide, NARROW)) as client:
        answers = client.stub.Read(ALL_CELLS)
        _until(lambda: any(call.in_flight >= WINDOW for call in _under_way(wide, "reads")))
        monkeypatch.setattr(calls, "STALL", 0.2)
        _until(lambda: not _under_way(wide, "reads"))
        with pytest.raises(grpc.RpcError) as caught:
            list(answers)
        assert caught.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
        monkeypatch.undo()
        assert client.write(INSERT, table_entry=client.station(b"\x05")) == 0  # others are not concerned


def test_a_stream_that_does_not_read_loses_packets_and_is_closed(served, monkeypatch):
    with contextlib.closing(Client(served, NARROW)) as client:
        entry = client.station(b"\x30", action=client.call("I.to_controller"))
        assert client.write(INSERT, table_entry=entry) == 0
        requests = [p4r.StreamMessageRequest(arbitration={"device_id": DEVICE, "election_id": {"low": 9}})]
        ended = threading.Event()
        stream = client.stub.StreamChannel(_held(requests, ended))
        assert next(stream).arbitration.election_id.low == 9
        frame = frame_to(0x30, payload=bytes(8000))
        while served.forwarding.no_controller == 0:
            served.send(0, frame)
        primary = served.forwarding.run_in_loop(lambda: served.service.controllers._primary())
        assert STREAM_WINDOW // 2 <= primary.call.in_flight <= STREAM_WINDOW
        assert served.forwarding.to_controller > served.forwarding.no_controller
        monkeypatch.setattr(calls, "STALL", 0.2)
        _until(lambda: primary not in served.service.controllers._streams)
        ended.set()
        with pytest.raises(grpc.RpcError):
            list(stream)


def _held(requests, ended):
    yield from requests
    ended.wait(LIMIT)


def test_a_stream_without_a_bid_is_ended_and_one_with_a_bid_may_be_silent(served, monkeypatch):
    monkeypatch.setattr(calls, "STALL", 0.2)
    with (
        contextlib.closing(Bidder(served.address)) as silent,
        contextlib.closing(Bidder(served.address)) as quiet,
    ):
        quiet.bid(5)
        quiet.told()
        assert silent.receive().code() is grpc.StatusCode.DEADLINE_EXCEEDED
        time.sleep(1.0)
        quiet.bid(6)
        assert quiet.told() == (6, rpc_code.OK)


def test_a_call_whose_request_does_not_come_is_ended(served, monkeypatch):
    monkeypatch.setattr(calls, "STALL", 0.2)
    with grpc.insecure_channel(served.address) as channel:
        ended = threading.Event()
        call = channel.stream_stream("/p4.v1.P4Runtime/Write")(_held([], ended))
        with pytest.raises(grpc.RpcError):
            list(call)
        ended.set()


def test_a_bid_waits_for_the_write_that_is_under_way(wide):
    with contextlib.closing(Client(wide)) as client, contextlib.closing(Bidder(wide.address)) as other:
        updates = [
            p4r.Update(type=INSERT, entity={"table_entry": client.station(n.to_bytes(6, "big"))})
            for n in range(1, 3001)
        ]
        write = client.stub.Write.future(write_request(updates))
        table = wide.forwarding.switch.table("I.stations")
        _until(lambda: wide.forwarding.run_in_loop(lambda: len(table)))
        other.bid(2)
        assert other.told() == (2, rpc_code.OK)
        assert wide.forwarding.run_in_loop(lambda: len(table)) == 3000
        write.result(LIMIT)


def test_packets_see_a_register_written_whole_at_once():
    switch = load(WIDE).switch()
    register = switch.registers["I.last"]
    steps = register.fill(5)
    taken = 0
    while register[CELLS - 1] == 0:
        assert {register[0], register[CELLS // 2]} == {0}
        next(steps)
        taken += 1
    assert taken > CELLS // 1000
    assert {register[index] for index in range(CELLS)} == {5}
    list(steps)
    with pytest.raises(ValueError, match="does not fit"):
        register.fill(1 << 48)
    pairs = switch.registers["I.pairs"]
    list(pairs.fill((3, -1)))
    pairs[1] = (4, -2)
    assert [pairs[0], pairs[1]] == [(3, -1), (4, -2)]  # records of their own


def test_faults_leave_no_garbage_that_only_a_collection_frees(served, client):
    wrong = [p4r.Update(type=INSERT, entity={"counter_entry": {"counter_id": 5}})] * 50
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            assert statuses_of(client.stub.Write, write_request(wrong)) == [rpc_code.INVALID_ARGUMENT] * 50
            assert statuses_of(client.stub.Write, write_request(wrong, device_id=99)) == [rpc_code.NOT_FOUND]
            client.send(packet=p4r.PacketOut(payload=b"x"))
            assert client.receive().error.canonical_code == rpc_code.INVALID_ARGUMENT
            with contextlib.closing(Bidder(served.address)) as other:
                other.bid(1)
                assert other.receive().code() is grpc.StatusCode.INVALID_ARGUMENT
        assert sum(isinstance(found, Fault) for found in gc.get_objects()) <= 1  # one may be at work
    finally:
        gc.enable()


def test_large_requests_are_refused_before_anything_is_carried_out(shared):
    large = p4r.Update(type=MODIFY, entity={"table_entry": {"metadata": bytes(40_000)}})
    good = p4r.Update(type=INSERT, entity={"table_entry": shared.station(b"\x05")})
    request = write_request([good, large])
    assert status_of(shared.stub.Write, request) == rpc_code.RESOURCE_EXHAUSTED
    entities = [p4r.Entity()] * 8193
    assert shared.read(*entities) == ([], [rpc_code.RESOURCE_EXHAUSTED])
    assert shared.entries(table_id=shared.id("I.stations")) == []


def test_what_is_kept_for_controllers_is_bounded(client):
    entry = client.station(b"\x05", metadata=bytes(1025))
    assert client.write(INSERT, table_entry=entry) == rpc_code.RESOURCE_EXHAUSTED
    entry.metadata = bytes(1024)
    assert client.write(INSERT, table_entry=entry) == 0
    sessions = [
        {"session_id": n, "replicas": [{"egress_port": 1}], "packet_length_bytes": 0} for n in range(1, 6)
    ]
    size = p4r.CloneSessionEntry(**sessions[0]).ByteSize()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(entities, "MAX_REPLICATION_BYTES", 3 * size)
        write = lambda kind, session: client.write(  # noqa: E731
            kind, packet_replication_engine_entry={"clone_session_entry": session}
        )
        found = [write(INSERT, session) for session in sessions]
        assert found == [0, 0, 0] + [rpc_code.RESOURCE_EXHAUSTED] * 2
        assert write(DELETE, sessions[1]) == 0
        assert [write(INSERT, session) for session in sessions[3:]] == [0, rpc_code.RESOURCE_EXHAUSTED]


def test_a_front_that_ends_is_started_again(served):
    with contextlib.closing(Bidder(served.address)) as bidder:
        bidder.bid(5)
        assert bidder.told() == (5, rpc_code.OK)
        served.server._process.kill()
        assert isinstance(bidder.receive(), grpc.RpcError)
    served.send(0, frame_to(0x10))
    _until(lambda: served.forwarding.counters[0].frames_in)
    with grpc.insecure_channel(served.address) as channel:
        grpc.channel_ready_future(channel).result(LIMIT)
    with contextlib.closing(Bidder(served.address)) as bidder:
        bidder.bid(4)
        assert bidder.told() == (5, rpc_code.NOT_FOUND)  # ids are remembered
    assert "it is started again" in served.said[0]


def test_a_front_whose_port_is_taken_meanwhile_is_started_until_it_is_free(served):
    """It listened nowhere, and nobody was told."""
    with socket.socket() as other:
        served.server._process.kill()
        served.server._process.wait()
        other.bind(("127.0.0.1", served.server.port))
        other.listen()
        _until(lambda: served.forwarding.run_in_loop(lambda: served.forwarding.failed) >= 2)
    with grpc.insecure_channel(served.address) as channel:
        grpc.channel_ready_future(channel).result(LIMIT)


# which calls are ended in favour of others


class _Front:
    """The front's end of a link to calls that never end by themselves."""

    def __init__(self, limit, keep):
        ours, self.end = pair()
        method = Method(_forever, "calls", limit)
        self.calls = Calls(Link(ours), {"Call": method}, lambda what, error: str(error), keep)
        self.end.setblocking(False)
        self._ours = ours

    def open(self, number, peer):
        """Open a call; return the numbers of the calls that are ended."""
        self.calls._open(calls.Message(number, Kind.OPEN, f"Call {peer}".encode()))
        ended = []
        with contextlib.suppress(BlockingIOError):
            while message := receive(self.end):
                ended.append(message.call)
        return ended

    def close(self):
        self.end.close()
        self._ours.close()


def _forever(call):
    while True:
        yield False


@pytest.fixture
def front():
    with contextlib.closing(_Front(4, lambda call: call.number == 2)) as front:
        yield front


def test_an_address_with_fewer_calls_takes_the_place_of_one_with_more(front):
    assert [front.open(n, "many") for n in range(1, 5)] == [[], [], [], []]
    assert front.open(5, "many") == [5]
    assert front.open(6, "few") == [4]  # the latest
    assert front.open(7, "few") == [3]
    assert front.open(8, "few") == [8]  # 2 to 2
    assert front.open(9, "new") == [7]


def test_a_call_that_is_kept_is_never_ended(front):
    assert [front.open(n, "many") for n in (1, 2)] == [[], []]
    assert [front.open(n, f"other {n}".replace(" ", "")) for n in (3, 4)] == [[], []]
    assert front.open(5, "new") == [1]
    assert front.open(6, "newer") == [6]
