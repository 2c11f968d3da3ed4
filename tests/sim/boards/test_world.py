"""The world of boards and hosts: the switch, the links' times and faults, UDP sockets, a TAP device, sleep."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from fanin.base.errors import InputError
from fanin.link import LinkConfig
from fanin.sim.boards.hosts import BoardAddress, QueueHost, TapHost, UdpHost, addresses
from fanin.sim.boards.world import AWAKE_PS, MacSwitch, World
from fanin.wire.arp import ARP, Operation, encode_arp
from fanin.wire.control import ControlFrame, Kind, encode_control, hello_request
from fanin.wire.ethernet import ETHERNET, Endpoint, encode_udp
from fanin.wire.fields import byte_length, unpack_fields
from tests.fuzzing import Memory, Mutator, lengths, new_random, within
from tests.sim.boards.echo import LATENCY, Config, EchoBoards

GATEWAY = Endpoint(0x02FA170000FE, 0x0A4D0001)
BOARDS = [Endpoint(0x02FA17000001 + number, 0x0A4D0002 + number, 34998) for number in range(2)]
BROADCAST = 0xFFFFFFFFFFFF
PORT = 34998
STEP = 1.0  # seconds of processor time for 50 µs of boards that compute nothing
GROWTH = 40_000  # kB
NS = 1000
DURATION = (8 + 60 + 4) * 8 * NS  # of the shortest frame


def frame(source, destination, size=60):
    return (destination.to_bytes(6, "big") + source.to_bytes(6, "big") + b"\x88\xb5").ljust(size, b"x")


def test_the_switch_learns():
    switch = MacSwitch(4)
    assert [port for port, _, _ in switch.inject(1, frame(1, 2), 5)] == [0, 2, 3]
    assert switch.inject(2, frame(2, 1), 7) == [(1, frame(2, 1), 7)]
    assert [port for port, _, _ in switch.inject(1, frame(1, BROADCAST), 9)] == [0, 2, 3]
    assert switch.inject(2, frame(3, 2), 7) == []  # it is where it came from
    assert [port for port, _, _ in switch.inject(0, frame(1, 2), 9)] == [2]
    assert [port for port, _, _ in switch.inject(3, frame(2, 1), 9)] == [0]  # both have moved
    switch.inject(0, frame(BROADCAST, 1), 9)
    assert len(switch.inject(1, frame(1, BROADCAST), 9)) == 3  # a group is nowhere


def test_the_switch_forgets_whom_it_heard_first(monkeypatch):
    monkeypatch.setattr("fanin.sim.boards.world._MAX_ADDRESSES", 2)
    switch = MacSwitch(4)
    for port, source in ((1, 1), (2, 2), (1, 1), (3, 3)):
        switch.inject(port, frame(source, BROADCAST), 0)
    heard = {
        address: [port for port, _, _ in switch.inject(0, frame(9 << 40, address), 0)] for address in (1, 2, 3)
    }
    assert heard == {1: [1], 2: [1, 2, 3], 3: [3]}


def test_times_between_boards():
    boards = EchoBoards([Config(), Config()], answers=False)
    world = World(boards, link=LinkConfig(delay_ns=300, gbps=1))
    boards.transmit(0, frame(1, BROADCAST), 2_000 * NS)
    boards.transmit(0, frame(1, BROADCAST), 2_000 * NS + DURATION + 96 * NS, fault="FCS")
    boards.transmit(0, frame(1, BROADCAST), 2_000 * NS + 2 * DURATION + 192 * NS)
    world.run(10_000 * NS)
    # The switch has the frame 300 ns behind its last bit; the first bit is at the other board 300 ns later.
    assert [(board, at) for board, at, _, _ in boards.received] == [
        (1, 2_600 * NS),
        (1, 2_600 * NS + 2 * DURATION + 192 * NS),
    ]
    assert vars(world.statistics) == {"from_boards": 2, "from_hosts": 0, "faults": 1}
    assert world.time == boards.time == 10_000 * NS


def test_faults_of_links():
    def sent(**faults):
        boards, host = EchoBoards(answers=False), QueueHost()
        world = World(boards, [host], link=LinkConfig(delay_ns=300, gbps=1, **faults), seed=3)
        for number in range(100):
            host.send(frame(1, 2, 60 + number))
        world.run(1_000_000 * NS)
        return boards.received

    assert len(sent()) == 100
    assert sent() == sent()
    assert not any(bad for *_, bad in sent())
    assert sent(drop=1) == []
    assert 10 < len(sent(drop=0.5)) < 40  # on two links
    assert Counter(Counter(len(data) for _, _, data, _ in sent(duplicate=1)).values()) == {4: 100}
    times = [at for _, at, _, _ in sent(reorder=0.3)]
    assert len(times) == 100
    assert any(bad for *_, bad in sent(corrupt=0.2))


def test_a_link_needs_a_delay():
    with pytest.raises(ValueError, match=r"link.delay_ns must be at least 1, not 0"):
        World(EchoBoards(), link=LinkConfig(delay_ns=0))


@contextlib.contextmanager
def serving(world):
    """The world in a thread of its own."""
    ended = threading.Event()
    thread = threading.Thread(target=world.serve, args=(ended.is_set,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        world.close()


@contextlib.contextmanager
def client(address="127.0.0.1", port=0):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(5)
        one.bind((address, port))
        yield one


def udp_world(first="127.0.71.2"):
    own = addresses(first, 2)
    listening = [BoardAddress(board, address) for board, address in zip(BOARDS, own, strict=True)]
    host = UdpHost(GATEWAY, listening, [PORT])
    boards = EchoBoards([Config(mac=board.mac) for board in BOARDS])
    return World(boards, [host], awake_ps=100_000_000), boards, host, own


def test_udp_clients_reach_boards():
    world, boards, host, own = udp_world()
    with serving(world), client() as one, client("127.0.0.5", one.getsockname()[1]) as other:
        for number in range(20):
            who, board = (one, other)[number % 2], number // 2 % 2
            payload = b"%d" % number * (number + 1)
            who.sendto(payload, (own[board], PORT))
            answer, source = who.recvfrom(2000)
            assert (answer, source) == (payload, (own[board], PORT))
    ports = {unpack_fields(ETHERNET, data)["destination"] for _, _, data, _ in boards.received}
    assert {BOARDS[0].mac, BOARDS[1].mac} <= ports
    assert host.strays == 0


def test_the_udp_host_answers_for_its_address():
    world, boards, host, _ = udp_world("127.0.71.12")
    asks = encode_arp(Operation.REQUEST, sender=BOARDS[1], target=Endpoint(0, GATEWAY.ip))
    others = encode_arp(Operation.REQUEST, sender=BOARDS[1], target=Endpoint(0, GATEWAY.ip + 7))
    boards.answers = False
    boards.transmit(1, asks, 1_000_000)
    boards.transmit(1, others, 2_000_000)
    boards.transmit(1, encode_udp(b"lost", source=BOARDS[1], destination=GATEWAY), 3_000_000)
    boards.transmit(1, frame(BOARDS[1].mac, GATEWAY.mac), 4_000_000)
    world.run(20_000_000)
    world.close()
    answers = [data for board, _, data, _ in boards.received if data[6:12] == GATEWAY.mac.to_bytes(6, "big")]
    (arp,) = [unpack_fields(ARP, data[byte_length(ETHERNET) :]) for data in answers]
    assert (arp["operation"], arp["sender_mac"], arp["sender_ip"]) == (2, GATEWAY.mac, GATEWAY.ip)
    assert (arp["target_mac"], arp["target_ip"]) == (BOARDS[1].mac, BOARDS[1].ip)
    assert host.strays == 1


def test_a_board_s_datagram_to_port_0_is_lost():
    """The kernel refuses it; the simulation ended with a traceback."""
    world, boards, _, own = udp_world("127.0.71.92")
    boards.transmit(0, encode_udp(b"x", source=BOARDS[0], destination=replace(GATEWAY, port=0)), 1_000_000)
    with serving(world), client() as one:
        one.sendto(b"after it", (own[0], PORT))
        assert one.recvfrom(100)[0] == b"after it"


def test_a_datagram_that_no_frame_holds_is_lost():
    """It kept the line for 0.5 ms, minutes of a simulated board."""
    world, boards, host, own = udp_world("127.0.71.82")
    with serving(world), client() as one:
        for size in (65_507, 1473, 1472):
            one.sendto(bytes(size), (own[0], PORT))
        assert len(one.recvfrom(2000)[0]) == 1472
    assert [len(data) for board, _, data, _ in boards.received if not board] == [1514]
    assert host.strays == 2


def test_of_too_many_clients_the_longest_silent_is_forgotten(monkeypatch):
    monkeypatch.setattr("fanin.sim.boards.hosts.MAX_CLIENTS", 2)
    world, boards, _, own = udp_world("127.0.71.62")
    with serving(world), contextlib.ExitStack() as opened:
        clients = [opened.enter_context(client(f"127.0.0.{number}", 50001)) for number in (1, 2, 3)]
        for number in (0, 1, 0, 2, 0, 1):
            clients[number].sendto(b"%d" % number, (own[0], PORT))
            assert clients[number].recvfrom(100)[0] == b"%d" % number
    ports = [int.from_bytes(data[34:36], "big") for board, _, data, _ in boards.received if not board]
    assert ports == [50001, 49152, 50001, 49152, 50001, 49152]  # the third has the second's, and it that again


class Flood(QueueHost):
    """A host that always has more to send."""

    asked = 0

    def receive(self):
        self.asked += 1
        return [encode_udp(b"flood", source=GATEWAY, destination=BOARDS[0])] * 64


def test_a_flood_is_held_to_the_rate_of_its_line():
    boards, host, other = EchoBoards([Config(mac=BOARDS[0].mac)], answers=False), Flood(), QueueHost()
    world = World(boards, [host, other])
    world.run(5_000_000 * NS)
    carried = 5_000_000 * NS // DURATION
    ahead = 1_000_000 * NS // DURATION + 64
    assert carried < world.statistics.from_hosts <= carried + ahead
    other.send(frame(7, BOARDS[0].mac))
    before = len(boards.received)
    world.run(world.time + 2_000_000 * NS)
    assert frame(7, BOARDS[0].mac) in [data for _, _, data, _ in boards.received[before:]]


@lengths(rounds=60)
def test_damaged_datagrams_hold_up_no_client(length):
    """Of any size, from many ports; and frames of a board that are none of its protocols'."""
    rng = new_random()
    world, boards, _, own = udp_world("127.0.71.72")
    samples = [encode_control(hello_request(1)), encode_control(ControlFrame(Kind.ACCESS, 5, 1, 1, (4, 0)))]
    payloads = Mutator(rng, samples, longest=65_507)
    asks = encode_arp(Operation.REQUEST, sender=BOARDS[1], target=Endpoint(0, GATEWAY.ip))
    frames = Mutator(rng, [asks, encode_udp(b"x" * 30, source=BOARDS[1], destination=GATEWAY)], longest=9000)
    memory = Memory()
    with contextlib.ExitStack() as opened:
        opened.callback(world.close)
        clients = [opened.enter_context(client(f"127.0.0.{rng.randint(1, 200)}")) for _ in range(30)]
        for _ in length.each():
            for _ in range(rng.choice((1, 5, 20))):
                rng.choice(clients).sendto(payloads.message(), (own[rng.randrange(2)], PORT))
            boards.transmit(1, frames.message(), world.time + rng.randrange(2_000_000, 40_000_000))
            with within(STEP, time.thread_time):
                world.run(world.time + 50_000_000)
            boards.received.clear()
        boards.transmit(
            0, frame(BOARDS[0].mac, BROADCAST), world.time + 2_000_000
        )  # the switch learns it again
        world.run(world.time + 3_000_000_000)  # all that was on its way
        with client("127.0.0.9") as one:
            one.sendto(b"clean", (own[0], PORT))
            world.run(world.time + 100_000_000)
            assert one.recvfrom(100) == (b"clean", (own[0], PORT))
    assert memory.growth < GROWTH


def test_an_idle_world_sleeps():
    world, boards, _, own = udp_world("127.0.71.22")
    with serving(world), client() as one:
        time.sleep(0.3)
        asleep = world.time
        one.sendto(b"x", (own[0], PORT))
        assert one.recvfrom(100)[0] == b"x"
    assert 100_000_000 < asleep < 100_000_000 + 0.3 / 0.005 * 1.5 * 20_000_000
    assert boards.received[0][1] < asleep + 1_000_000_000
    assert LATENCY < AWAKE_PS


def test_a_frame_shorter_than_on_a_wire_is_a_stray():
    """A TAP device passes what a raw socket has sent."""
    _, _, host, _ = udp_world("127.0.71.42")
    with contextlib.closing(host):
        for ethertype in (b"\x08\x00", b"\x08\x06", b"\x86\xdd"):
            for size in range(60):
                host.deliver((bytes(12) + ethertype)[:size], 0)
        assert host.receive() == []
        assert host.strays > 0


def test_addresses_that_cannot_be_had():
    with pytest.raises(InputError, match=r"nowhere: no IPv4 address for 2 boards"):
        addresses("nowhere", 2)
    listening = [BoardAddress(BOARDS[0], "127.0.71.32")] * 2
    with pytest.raises(InputError, match=r"127.0.71.32:34998 cannot be listened on: Address already in use"):
        UdpHost(GATEWAY, listening, [PORT])
    with pytest.raises(InputError, match=r"198.51.100.9:34998 cannot be listened on"):
        UdpHost(GATEWAY, [BoardAddress(BOARDS[0], "198.51.100.9")], [PORT])


IN_A_NAMESPACE = """
import socket, subprocess, threading
from fanin.sim.boards.hosts import TapHost
from fanin.sim.boards.world import World
from tests.sim.boards.echo import EchoBoards
tap = TapHost("fanin0")
neighbour = "neigh add 10.77.0.2 lladdr 02:fa:17:00:00:01"
for command in ("addr add 10.77.0.1/24", "link set up", neighbour):
    subprocess.run(["ip", *command.split(), "dev", "fanin0"], check=True)
world, ended = World(EchoBoards(), [tap]), threading.Event()
thread = threading.Thread(target=world.serve, args=(ended.is_set,), daemon=True)
thread.start()
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(5)
one.sendto(b"hello", ("10.77.0.2", 7777))
print(one.recvfrom(100))
ended.set()
thread.join()
world.close()
"""


def in_namespace(script, *arguments):
    """Run a script as the root of a network namespace of its own (need ``tap``); return what it prints."""
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.needs("tap")
def test_the_kernel_reaches_boards_through_a_tap_device():
    assert in_namespace(IN_A_NAMESPACE) == "(b'hello', ('10.77.0.2', 7777))\n"


REMOVED = """
import subprocess
from fanin.base.errors import InputError
from fanin.sim.boards.hosts import TapHost
from fanin.sim.boards.world import World
from tests.sim.boards.echo import EchoBoards
tap = TapHost("fifteen-bytes-0")
subprocess.run("ip link set up dev fifteen-bytes-0".split(), check=True)
world = World(EchoBoards(), [tap])
world.serve(lambda: world.time > 0)
subprocess.run("ip link del fifteen-bytes-0".split(), check=True)
for use in (lambda: world.serve(lambda: False), lambda: tap.deliver(bytes(60), 0)):
    try:
        use()
    except InputError as error:
        print(error)
world.close()
"""


@pytest.mark.needs("tap")
def test_a_tap_device_that_is_removed_is_an_error():
    assert in_namespace(REMOVED) == "--tap fifteen-bytes-0: the device is gone\n" * 2


@pytest.mark.needs("tap")
def test_a_tap_device_that_cannot_be_had():
    with pytest.raises(InputError, match=r"--tap a/b: no TAP device: .*; it needs CAP_NET_ADMIN"):
        TapHost("a/b")
    for name in ("", "sixteen-bytes-00", "é" * 8, "tap%d"):
        with pytest.raises(InputError, match=f"--tap {name}: a device's name has 1 to 15 bytes, and no %"):
            TapHost(name)
