"""Damaged bytes at P4Runtime's port: requests that gRPC carries, and connections that are hardly HTTP/2.

``test_fuzz.py`` damages what protobuf can still read, and follows each update; here nothing need be readable.
"""

import contextlib
import socket
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r

from tests.fuzzing import Memory, Mutator, lengths, new_random, speak, within
from tests.sim.switch.service.apart import Apart
from tests.sim.switch.service.client import DEVICE, INSERT, LIMIT, Client, Set, status_of, wide, write_request
from tests.sim.switch.service.served import Served, frame_to

ANSWER = 15.0  # seconds: silent clients are ended after ten
FRONT_GROWTH, GROWTH = 200_000, 60_000  # kB
HELD = 3  # the primary controller's while requests are damaged; they have it, too
LAST = 2**128 - 1  # an election id that no other exceeds
CHOSEN = {
    grpc.StatusCode[name]
    for name in (
        "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
        "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED",
    )
}  # fmt: skip


def _frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _literal(name, value):
    """A header field of HPACK, not indexed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


HEADERS = b"".join(
    _literal(name, value)
    for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/p4.v1.P4Runtime/Capabilities"),
        (b":authority", b"switch"), (b"content-type", b"application/grpc"), (b"te", b"trailers"),
    )
)  # fmt: skip
HTTP2 = b"".join(
    (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        _frame(4, 0, 0, b"\0\4\0\1\0\0"),  # SETTINGS
        _frame(8, 0, 0, b"\0\1\0\0"),  # WINDOW_UPDATE
        _frame(1, 4, 1, HEADERS),
        _frame(0, 1, 1, bytes(5)),  # DATA: an empty message
        _frame(6, 0, 0, bytes(8)),  # PING
        _frame(1, 0, 3, HEADERS[:20]),
        _frame(9, 4, 3, HEADERS[20:]),  # CONTINUATION
        _frame(3, 0, 3, b"\0\0\0\x08"),  # RST_STREAM
    )
)


def _requests(info):
    """Valid requests, by method."""
    entry = p4r.Update(type=INSERT, entity={"counter_entry": {"counter_id": info.counters[0].preamble.id}})
    table = p4r.TableEntry(table_id=info.tables[0].preamble.id, priority=1)
    bid = p4r.StreamMessageRequest(arbitration={"device_id": DEVICE, "election_id": wide(HELD)})
    packet = p4r.StreamMessageRequest(packet={"payload": frame_to(3)})
    made = {
        "Read": [p4r.ReadRequest(device_id=DEVICE, entities=[{"table_entry": {}}, {"register_entry": {}}]),
                 p4r.ReadRequest(device_id=DEVICE, entities=[{"table_entry": table}])],
        "Write": [write_request([entry] * count, election_id=wide(HELD)) for count in (1, 3)],
        "SetForwardingPipelineConfig": [
            Set(device_id=DEVICE, election_id=wide(HELD), action=Set.VERIFY_AND_COMMIT, config={"cookie": {}}),
            Set(device_id=DEVICE, election_id=wide(HELD), action=Set.VERIFY, config={"p4info": info}),
        ],
        "GetForwardingPipelineConfig": [p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE)],
        "Capabilities": [p4r.CapabilitiesRequest()],
        "StreamChannel": [bid, packet],
        "NoSuchMethod": [bid],
    }  # fmt: skip
    return {method: [one.SerializeToString() for one in several] for method, several in made.items()}


def _call(channel, method, messages):
    """The status that a call ends with, answers read; gRPC's own text for an exception of its handler."""
    call = channel.stream_stream(f"/p4.v1.P4Runtime/{method}")(iter(messages), timeout=2 * ANSWER)
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        batch = "grpc-status-details-bin" in dict(error.trailing_metadata() or ())
        return error.code() if batch or error.code() is not grpc.StatusCode.UNKNOWN else error.details()
    return call.code()


def _children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _works(served, exchange, info=None):
    """A new primary controller sets the pipeline, an entry, and sees a frame follow it."""
    with contextlib.closing(Client(served, election=LAST)) as client:
        bring = {"device_id": DEVICE, "election_id": wide(LAST), "action": Set.VERIFY_AND_COMMIT}
        request = Set(config={"p4info": info or client.info}, **bring)
        assert status_of(client.stub.SetForwardingPipelineConfig, request) == 0
        client.refresh()
        entry = client.station(b"\x20", port=b"\0")
        update = p4r.Update(type=INSERT, entity={"table_entry": entry})
        client.stub.Write(write_request([update], election_id=wide(LAST)), timeout=LIMIT)
        assert len(client.entries(table_id=client.id("I.stations"))) == 1
    frame = frame_to(0x20)
    assert exchange(frame) == frame


class Target:
    """A served program in this process, or in one of its own: address, processes, frames to and from port 0."""

    def __init__(self, apart):
        self.apart = apart
        self.served = Apart("small") if apart else Served()
        self.address = self.served.address
        pid = self.served.process.pid if apart else None
        front = _children(pid)[0] if apart else self.served.server._process.pid
        self.memory = [(Memory(pid), GROWTH), (Memory(front), FRONT_GROWTH)]

    def exchange(self, frame):
        host = self.served.host if self.apart else self.served.interfaces[0].host
        host.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:  # packets that damaged requests had sent out
                host.recv(1 << 16)
        host.settimeout(LIMIT)
        host.send(frame)
        return host.recv(2000)

    def failures(self):
        if self.apart:
            found = self.served.ask("stats")
            return found["failed"], found["said"]
        return self.served.forwarding.run_in_loop(lambda: (self.served.forwarding.failed, self.served.said))


@pytest.fixture
def target(length):
    target = Target(apart=length.rounds is None)
    with contextlib.closing(target.served):
        yield target


@lengths(rounds=80)
def test_calls_of_any_bytes_end_with_a_status_and_the_switch_forwards_on(target, length, capfd):
    rng = new_random()
    primary = Client(target.served, election=HELD)
    requests = _requests(primary.info)
    everything = [one for several in requests.values() for one in several]
    damaged = Mutator(rng, everything, longest=200_000)
    for number in length.each():
        if number % 20 == 0:
            channel = grpc.insecure_channel(target.address, options=[("grpc.use_local_subchannel_pool", 1)])
        method = rng.choice(list(requests))
        own = requests[method]
        messages = [
            damaged.message() if rng.random() < 0.3 else damaged.damaged(rng.choice(own))
            for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 3)))
        ]
        with within(ANSWER):
            status = _call(channel, method, messages)
        assert status in CHOSEN, (method, status)
        if number % 20 == 19:
            channel.close()
    channel.close()
    primary.close()
    assert all(memory.growth < limit for memory, limit in target.memory), [m.growth for m, _ in target.memory]
    _works(target.served, target.exchange, primary.info)
    assert target.failures() == (0, [])
    assert "Traceback" not in capfd.readouterr().err


@lengths(rounds=60)
def test_connections_that_are_no_http_2_hold_up_no_controller(target, length, capfd):
    rng = new_random()
    damaged = Mutator(rng, [HTTP2, HTTP2[: rng.randrange(24, len(HTTP2))]], longest=100_000)
    host, port = target.address.rsplit(":", 1)
    open_ = []
    for number in length.each():
        one = socket.create_connection((host, int(port)), LIMIT)
        open_.append(one)
        one.settimeout(0.05)
        speak(one, damaged.message(), rng, pause=0)
        if len(open_) > 40:
            open_.pop(rng.randrange(len(open_))).close()
        if number % 50 == 0:
            with within(ANSWER), grpc.insecure_channel(target.address) as channel:
                assert _call(channel, "Capabilities", [b""]) is grpc.StatusCode.OK
    for one in open_:
        one.close()
    assert all(memory.growth < limit for memory, limit in target.memory), [m.growth for m, _ in target.memory]
    _works(target.served, target.exchange)
    assert target.failures() == (0, [])
    assert "Traceback" not in capfd.readouterr().err
