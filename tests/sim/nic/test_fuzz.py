"""Damaged requests at a node's control socket, and damaged frames at its interface."""

import contextlib
import json
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from fanin.codec.facts import MAX_FRAME, TOS_COMPRESSIBLE, TOS_RAW, Inceptionn
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Connection, Ending, Region, Write
from fanin.sim.nic.address import Address
from fanin.sim.nic.control import MAX_LINE, ControlServer
from fanin.sim.nic.ports import HOST, WIRE, InceptionnPorts
from fanin.sim.nic.rdma_control import RdmaControl
from fanin.sim.nic.rdma_model import RdmaNicModel
from fanin.sim.nic.rdma_settings import Peer, RdmaSettings
from fanin.wire.arp import Operation, encode_arp
from fanin.wire.ethernet import Endpoint, internet_checksum
from fanin.wire.icmp import EchoType, encode_echo
from fanin.wire.rdma import icrc
from tests.fanin.codec.golden.packets import frame_of
from tests.fuzzing import JsonMutator, Memory, Mutator, is_one_line, lengths, new_random, speak, within
from tests.sim.nic.test_rdma_model import A, B, Wire
from tests.sim.switch.service.served import FakeInterface

SIZE = 4096
OWN = Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01)
IP, MAC = "10.0.0.2", "02:00:00:00:00:02"
STEP = 1.0  # seconds of processor time in which all that has come is served
GROWTH = 60_000  # kB, of which pytest's own process has some
CLIENTS = 8
#: Requests of each kind; those that wait for others to end do not wait long.
REQUESTS = (
    {"do": "info", "id": 1},
    {"do": "connect", "ip": IP, "mac": MAC, "pair": 1, "peer": 256, "mtu": 256, "window": 4, "retries": 1},
    {"do": "connect", "ip": IP, "send_psn": 3, "receive_psn": 4, "id": "x"},
    {"do": "regions", "regions": [{"rkey": 7, "base": 0, "length": 64, "pairs": [0]}, {"rkey": 1, "base": 64}]},
    {"do": "write", "length": 100, "pair": 1, "local": 0, "remote": 64, "rkey": 1, "immediate": 5},
    {"do": "arrival", "seconds": 0.01, "id": [1, {"a": 2}]},
    {"do": "counters"},
)
ANSWERS = {"id", "error", "ending", "arrival", "counters", "node", "mac", "ip", "mtu", "queue_pairs"} | {
    "first_queue_pair", "descriptors", "connected", "waiting", "regions", "memory", "bytes",
}  # fmt: skip


class Nic:
    """The twin of a node with its control socket, served by the test's own thread."""

    def __init__(self, path):
        self.path = path
        self.memory = bytearray(SIZE)
        self.node = RdmaNicModel(OWN, self.memory, timeout=0.001, send=lambda frame: None)
        region = Region(0, SIZE, 1, frozenset({FIRST_QUEUE_PAIR}))
        peers = (Peer(0x0A_00_00_09),)
        settings = RdmaSettings(PRESETS["tiny"], "a0", OWN, Path("/m"), SIZE, 1024, (region,), peers)
        self.control = RdmaControl(self.node, settings, Address(OWN), kind="model")
        self.node.on_arrival = self.control.add_arrival
        self.control.begin()
        self.server = ControlServer(path, self.control.handle)

    def serve(self):
        """Serve all that has come."""
        with within(STEP, time.thread_time):
            for _ in range(100):
                if not self.server.serve():
                    break
        self.control.serve()
        self.node.check_timeouts()

    def client(self):
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(self.path))
        one.settimeout(0.001)
        return one

    def ask(self, request):
        """The one answer to a request of a new client."""
        with self.client() as one:
            one.sendall(json.dumps(request).encode() + b"\n")
            end, text = time.monotonic() + 20, b""
            while not text.endswith(b"\n"):
                assert time.monotonic() < end
                self.serve()
                with contextlib.suppress(TimeoutError):
                    text += one.recv(1 << 16)
            return json.loads(text)


@pytest.fixture
def nic(tmp_path):
    nic = Nic(tmp_path / "control")
    yield nic
    nic.server.close()


def _answers(client):
    """The lines that a client has been sent so far; those of one that was hung up on may be cut."""
    text = b""
    with contextlib.suppress(TimeoutError, ConnectionError, BlockingIOError):
        while piece := client.recv(1 << 20):
            text += piece
    return text.split(b"\n")[:-1]


def _check(line):
    answer = json.loads(line)
    assert isinstance(answer, dict)
    assert answer.keys() <= ANSWERS
    assert "error" not in answer or is_one_line(answer["error"])
    assert len(line) < 8 * MAX_LINE  # a text of the request, escaped, at most


@lengths(rounds=250)
def test_damaged_requests_are_answered_and_the_node_serves_on(nic, length):
    rng = new_random()
    requests = JsonMutator(rng, REQUESTS, longest=MAX_LINE + 1000)
    nic.ask(REQUESTS[0])
    memory, clients = Memory(), []
    with contextlib.ExitStack() as opened:
        for _ in length.each():
            if len(clients) < CLIENTS:
                clients.append(opened.enter_context(nic.client()))
            client = rng.choice(clients)
            data = b"\n".join([requests.message() for _ in range(rng.choice((1, 1, 2, 5)))] + [b""])
            if rng.random() < 0.05:
                data = rng.choice((b"\n", b"1\n", b"{}\n", b'{"do":"info"}\n')) * rng.randrange(MAX_LINE // 2)
            speak(client, data, rng, pause=0)
            nic.serve()
            if client.fileno() < 0 or rng.random() < 0.3:
                lines = _answers(client) if client.fileno() >= 0 else []
                for line in lines:
                    _check(line)
                clients.remove(client)
                client.close()
        nic.serve()
    assert memory.growth < GROWTH
    assert nic.ask({"do": "connect", "ip": IP, "mac": MAC, "pair": 3, "id": 5}) == {"id": 5}
    assert nic.ask({"do": "arrival", "id": 6}).keys() == {"id", "arrival"}
    info = nic.ask({"do": "info"})
    assert info["connected"][-1] == {"pair": 3, "ip": IP, "peer": 256, "mtu": 1024, "failed": None}
    assert nic.ask({"do": "regions", "regions": []}) == {}
    assert nic.ask({"do": "info"})["regions"] == []


# ---- frames ----

MARKS = bytes([TOS_COMPRESSIBLE]), bytes([TOS_RAW])  # of packets that the NIC touches
FRAME_SECONDS = 0.5  # of processor time for one frame
REGION = 1 << 12  # bytes of memory that peers may write, behind the first ones


class RdmaPair:
    """Two twins of nodes; the second one also gets damaged frames. ``spoken`` is a valid exchange."""

    def __init__(self, rng):
        self.wire = Wire(np.random.default_rng(rng.getrandbits(32)))
        self.target = self.wire.nodes[1]
        self.reset()
        self.spoken = [frame for _, frame in self._written(range(0, 3000, 500))]
        self.spoken += [encode_arp(Operation.REPLY, sender=A, target=B), bytes(60)]
        self.before = bytes(self.target.memory[REGION:])

    def reset(self):
        """Connect both ends anew; the target's first bytes alone may be written."""
        for node, peer in zip(self.wire.nodes, (B, A), strict=True):
            node.connect(0, Connection(FIRST_QUEUE_PAIR, mtu=256, window=8), peer, lambda: None)
            node.set_regions([Region(0, REGION, 7, frozenset({FIRST_QUEUE_PAIR}))], lambda: None)
        self.wire.under_way.clear()

    def _written(self, lengths_):
        ended, seen = [], []
        for length in lengths_:
            self.wire.nodes[0].post(0, Write(0, 0, length, 7, 1000, immediate=length), ended.append)
        while self.wire.under_way:
            seen.append(self.wire.under_way.pop(0))
            to, frame = seen[-1]
            self.wire.nodes[to].receive(frame)
        assert ended == [Ending.DONE] * len(lengths_)
        return seen

    def check(self):
        """Bytes beyond the region are as they were, and a new connection writes exactly."""
        assert bytes(self.target.memory[REGION:]) == self.before
        self.reset()
        self._written([2000])
        assert self.target.memory[2000:3000] == self.wire.nodes[0].memory[:1000]


def _signed(frame):
    """The frame with lengths, checksum and ICRC made right."""
    whole = bytearray(frame)
    whole[16:18] = (len(frame) - 14).to_bytes(2, "big")
    whole[38:40] = (len(frame) - 34).to_bytes(2, "big")
    whole[24:26] = bytes(2)
    whole[24:26] = internet_checksum(bytes(whole[14:34])).to_bytes(2, "big")
    return bytes(whole[:-4]) + icrc(bytes(whole[:-4])).to_bytes(4, "little")


@lengths(rounds=400)
def test_damaged_frames_change_nothing_that_a_peer_may_not_change(length):
    rng = new_random()
    pair = RdmaPair(rng)
    frames = Mutator(rng, pair.spoken, longest=9000)
    memory = Memory()
    for number in length.each():
        frame = frames.message()
        if rng.random() < 0.7 and len(frame) > 62:  # one that its sender has signed
            frame = _signed(frame)
        with within(FRAME_SECONDS, time.thread_time):
            pair.target.receive(frame)
            pair.target.check_timeouts()
        assert len(pair.wire.under_way) <= 2
        pair.wire.under_way.clear()
        pair.wire.arrivals.clear()
        if number % 100 == 0:
            pair.check()
    pair.check()
    assert memory.growth < GROWTH


@lengths(rounds=150)
def test_damaged_frames_leave_inceptionns_nic_and_come_in_whole(length):
    rng = new_random()
    values = np.random.default_rng(rng.getrandbits(32)).normal(size=300).astype("<f4").tobytes()
    ports, codec = InceptionnPorts(Inceptionn(10)), Inceptionn(10)
    valid = [
        frame_of(values),
        frame_of(values[:20]),
        frame_of(values, "tcp"),
        frame_of(values, tos=0),
    ]
    wire = [left for frame in valid for _, left in InceptionnPorts(codec).process(HOST, frame)]
    clean = [InceptionnPorts(codec).process(WIRE, frame) for frame in wire]
    frames = Mutator(rng, valid + wire, longest=9300)
    memory = Memory()
    for _ in length.each():
        port, frame = rng.choice((HOST, WIRE)), frames.message()
        with within(FRAME_SECONDS, time.thread_time):
            left = ports.process(port, frame)
        assert len(left) <= 1
        for to, out in left:
            assert to != port
            assert len(out) <= MAX_FRAME
        if frame[12:14] != b"\x08\x00" or frame[15:16] not in MARKS:  # traffic of others
            assert left == ([(1 - port, frame)] if len(frame) <= MAX_FRAME else [])
    assert memory.growth < GROWTH
    assert [ports.process(WIRE, frame) for frame in wire] == clean


@lengths(rounds=300)
def test_damaged_arp_and_pings_draw_no_longer_answers(length):
    rng = new_random()
    address, interface = Address(OWN), FakeInterface()
    peer = Endpoint(0x02_00_00_00_00_07, 0x0A_00_00_07)
    question = encode_arp(Operation.REQUEST, sender=peer, target=OWN).ljust(60, b"\0")
    ping = encode_echo(EchoType.REQUEST, bytes(56), identifier=1, sequence=2, source=peer, destination=OWN)
    reply = encode_arp(Operation.REPLY, sender=peer, target=OWN, destination=OWN.mac)
    frames = Mutator(rng, [question, ping, reply], longest=9000)
    interface.host.setblocking(False)
    memory = Memory()
    with contextlib.closing(interface):
        for _ in length.each():
            frame = frames.message()
            interface.host.send(frame)
            with within(FRAME_SECONDS, time.thread_time):
                kept = address.receive(interface)
            with contextlib.suppress(BlockingIOError):
                assert len(interface.host.recv(1 << 16)) <= max(60, len(frame))
                assert kept in ([], [frame])
        interface.host.send(question)
        assert address.receive(interface) == []
        assert interface.host.recv(100)[:12] == bytes.fromhex("020000000007020000000001")
    assert memory.growth < GROWTH
