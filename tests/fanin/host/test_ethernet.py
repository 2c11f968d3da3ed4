"""Interfaces in namespaces that the tests make: veth, TAP, VLAN tags, the kernel's own TCP, what is refused."""

import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fanin.base.errors import InputError
from fanin.host import ethernet
from fanin.host.ethernet import InterfaceLost, open_interface
from fanin.host.lab import Lab
from fanin.wire.ethernet import internet_checksum

pytestmark = pytest.mark.needs("namespaces")

HEADER = bytes(12) + b"\x88\xb5"


@pytest.fixture
def lab():
    with Lab(["here", "there"]) as lab:
        lab.wire("here", "near", "there", "far")
        yield lab


def _open(lab, namespace, name):
    return lab.opened(namespace, lambda: open_interface(name))


def _received(interface, count, limit=20):
    frames = []
    with selectors.DefaultSelector() as selector:
        selector.register(interface, selectors.EVENT_READ)
        end = time.monotonic() + limit
        while len(frames) < count and time.monotonic() < end:
            selector.select(0.2)
            frames += interface.receive()
    return frames


def _becomes(asked, wanted, limit=10):
    """Whether ``asked()`` is ``wanted`` in time: the kernel tells of a carrier up to a second later."""
    end = time.monotonic() + limit
    while asked() is not wanted and time.monotonic() < end:
        time.sleep(0.02)
    return asked() is wanted


def test_frames_cross_as_they_are_with_their_times(lab):
    with _open(lab, "here", "near") as near, _open(lab, "there", "far") as far:
        tagged = bytes(12) + b"\x81\x00\x20\x07\x88\xb5" + bytes(range(40))  # the kernel takes VLAN tags out
        twice = bytes(12) + b"\x88\xa8\x00\x05" + tagged[12:]
        frames = [HEADER, tagged, twice, HEADER + bytes(1500), *(HEADER + bytes([n]) * n for n in range(200))]
        time.sleep(0.3)  # until the kernel takes times (Interface.receive)
        before = time.time_ns()
        for number, frame in enumerate(frames):
            assert near.send(frame)
            if number % 50 == 49:
                time.sleep(0.01)
        found = _received(far, len(frames))
        assert [frame for _, frame in found] == frames
        times = [at for at, _ in found]
        assert times == sorted(times)
        assert before <= times[0] <= times[-1] <= time.time_ns()
        assert near.receive() == []  # its own are not received
        assert not near.send(HEADER[:13])
        assert not near.send(HEADER + bytes(1505))
        assert (near.unsent, far.lost, far.overrun()) == (2, 0, 0)


def test_frames_for_which_there_is_no_room_are_counted(lab):
    with _open(lab, "here", "near") as near, _open(lab, "there", "far") as far:
        sent = 0
        while not far.overrun() and sent < 100_000:
            for _ in range(500):
                near.send(HEADER + bytes(1400))
            sent += 500
        assert 0 < sent < 100_000
        left = _received(far, 1)
        while more := far.receive():
            left += more
        assert 0 < len(left) < sent


def test_an_interface_is_up_while_it_has_a_carrier(lab):
    with _open(lab, "here", "near") as near:
        assert _becomes(near.up, True)
        lab.run("there", ["ip", "link", "set", "far", "down"])
        assert _becomes(near.up, False)
        lab.run("there", ["ip", "link", "set", "far", "up"])
        assert _becomes(near.up, True)
        lab.run("here", ["ip", "link", "delete", "near"])
        assert not near.up()


@pytest.mark.needs("tap")
def test_a_tap_interface_is_attached_to(lab):
    lab.run("here", ["ip", "tuntap", "add", "tap0", "mode", "tap"])
    lab.run("here", ["ip", "link", "set", "tap0", "up"])
    lab.address(
        "here", "tap0", "10.9.0.1/24", mac="02:00:00:00:00:01", neighbours={"10.9.0.2": "02:00:00:00:00:02"}
    )
    with _open(lab, "here", "tap0") as tap:
        assert _becomes(tap.up, True)  # until then the kernel sends nothing there
        with lab.opened("here", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
            sender.sendto(b"any", ("10.9.0.2", 9))
        frames = [frame for _, frame in _received(tap, 1) if frame[12:14] == b"\x08\x00"]
        assert frames[0][:12].hex() == "020000000002020000000001"
        assert tap.send(HEADER)
        with pytest.raises(InputError, match="tap0: the interface is in use by another fanin"):
            _open(lab, "here", "tap0")
    attach = (
        "import fanin.host.ethernet as e, sys; e._claim_name = lambda n: open('/dev/null'); "
        "e.TapInterface('tap0'); print(flush=True); sys.stdin.read()"
    )
    other = lab.start(
        "here", [sys.executable, "-c", attach],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    other.stdout.readline()
    with pytest.raises(InputError, match="tap0: in use by another program"):
        _open(lab, "here", "tap0")
    other.communicate()
    _open(lab, "here", "tap0").close()  # it is as it was


def test_the_kernels_own_tcp_passes_whole(lab):
    """Partial checksums and large sends come out as frames that a wire could carry: Linux accepts every one."""
    with Lab(["a", "b"]) as hosts:
        for host, end in (("a", "10.8.0.1"), ("b", "10.8.0.2")):
            hosts.wire(host, "eth0", "a" if host == "b" else "b", f"wire-{host}")
            hosts.address(host, "eth0", f"{end}/24")
        left, right = _open(hosts, "b", "wire-a"), _open(hosts, "a", "wire-b")
        stop, seen = threading.Event(), []

        def forward():
            with selectors.DefaultSelector() as selector:
                selector.register(left, selectors.EVENT_READ, right)
                selector.register(right, selectors.EVENT_READ, left)
                while not stop.is_set():
                    for key, _ in selector.select(0.1):
                        for _, frame in key.fileobj.receive():
                            seen.append(frame)
                            key.data.send(frame)

        carrier = threading.Thread(target=forward)
        carrier.start()
        data = os.urandom(500_000)
        server = hosts.opened("b", lambda: socket.create_server(("10.8.0.2", 5000)))
        client = hosts.opened("a", lambda: socket.create_connection(("10.8.0.2", 5000), 20))
        sender = threading.Thread(target=lambda: (client.sendall(data), client.close()))
        sender.start()
        connection, _ = server.accept()
        connection.settimeout(20)
        found = b""
        while part := connection.recv(1 << 16):
            found += part
        sender.join()
        stop.set()
        carrier.join()
        for end in (left, right, server, connection):
            end.close()
        errors = hosts.run("b", ["cat", "/proc/net/snmp"])
    assert found == data
    assert max(map(len, seen)) == 1514
    tcp = [frame for frame in seen if frame[12:14] == b"\x08\x00" and frame[23] == 6]
    for frame in tcp:
        assert internet_checksum(frame[14:34]) == 0
        length = int.from_bytes(frame[16:18], "big") - 20
        pseudo = frame[26:34] + b"\0\x06" + length.to_bytes(2, "big")
        assert internet_checksum(pseudo + frame[34 : 34 + length]) == 0
    names, values = (line.split()[1:] for line in errors.splitlines() if line.startswith("Tcp:"))
    assert dict(zip(names, values, strict=True))["InErrs"] == "0"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope", "nope: no such interface; available are .*near"),
        ("lo", "lo: is not an Ethernet interface"),
        ("down0", "down0: the interface is down: ip link set down0 up"),
    ],
)
def test_what_cannot_be_opened_is_named(lab, name, message):
    lab.run("here", ["ip", "link", "add", "name", "down0", "type", "veth", "peer", "name", "down1"])
    with pytest.raises(InputError, match=message):
        _open(lab, "here", name)


def test_one_interface_has_one_owner_who_ends_with_it(lab):
    near = _open(lab, "here", "near")
    with pytest.raises(InputError, match="near: the interface is in use by another fanin"):
        _open(lab, "here", "near")
    near.close()
    near = _open(lab, "here", "near")
    lab.run("there", ["ip", "link", "delete", "far"])
    with pytest.raises(InterfaceLost, match="near: the interface is gone"):
        near.send(HEADER)
    with pytest.raises(InterfaceLost, match="near: the interface is gone"):
        lab.opened("here", lambda: (near.receive(), near.receive()))
    near.close()


def test_one_that_is_set_down_and_then_removed_is_lost_too(lab):
    with _open(lab, "here", "near") as near:
        lab.run("here", ["ip", "link", "set", "near", "down"])
        assert near.receive() == []
        assert near.overrun() == 0
        lab.run("here", ["ip", "link", "set", "near", "up"])
        with _open(lab, "there", "far") as far:
            assert far.send(HEADER)
            assert [frame for _, frame in _received(near, 1)] == [HEADER]
        lab.run("here", ["ip", "link", "set", "near", "down"])
        lab.run("here", ["ip", "link", "delete", "near"])
        with pytest.raises(InterfaceLost, match="near: the interface is gone"):
            near.overrun()


def test_without_the_right_it_is_said(lab, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(ethernet.PacketInterface, "__init__", refuse)
    with pytest.raises(InputError, match="near: opening it needs CAP_NET_RAW"):
        _open(lab, "here", "near")


def test_a_lab_goes_with_its_process():
    script = (
        "from fanin.host.lab import Lab; import time\n"
        "lab = Lab(['x']); lab.wire('x', 'one', 'x', 'two')\n"
        "print(lab._holders['x'].pid, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    holder = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + 20
    while Path(f"/proc/{holder}").exists() and time.monotonic() < end:
        state = Path(f"/proc/{holder}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break
        time.sleep(0.05)
    assert time.monotonic() < end


def _set_largest_send(name, size):
    """Set gso_max_size and gso_ipv4_max_size of an interface of this namespace, by RTM_NEWLINK."""
    index = socket.if_nametoindex(name)
    attributes = b"".join(struct.pack("=HHI", 8, kind, size) for kind in (41, 63))
    body = struct.pack("=BxHiII", 0, 0, index, 0, 0) + attributes
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.send(struct.pack("=IHHII", 16 + len(body), 16, 5, 1, 0) + body)
        return struct.unpack_from("=i", netlink.recv(4096), 16)[0] == 0


@pytest.mark.parametrize(
    ("ethertype", "kind", "ip"),
    [
        (0x0800, 1, bytes([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])),
        (0x86DD, 4, struct.pack(">IHBB", 6 << 28, 0, 6, 64) + bytes(32)),
    ],
    ids=["IPv4", "IPv6"],
)
def test_a_send_longer_than_64_kib_is_lost_and_counted(lab, ethertype, kind, ip):
    """Root at the other end of a veth pair raises its own end's limit of a large send."""
    for namespace, name in (("here", "near"), ("there", "far")):
        lab.run(namespace, ["ip", "link", "set", name, "mtu", "65535"])
    tcp = bytes(12) + b"\x50\x10" + bytes(6)
    frame = (bytes(12) + ethertype.to_bytes(2, "big") + ip + tcp).ljust(100_000, b"x")
    start = 14 + len(ip)
    with _open(lab, "here", "near") as near:

        def send():
            assert _set_largest_send("far", 200_000)
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
                sender.setsockopt(263, 15, 1)  # PACKET_VNET_HDR
                sender.bind(("far", ethertype))
                sender.send(struct.pack("=BBHHHH", 1, kind, start + 20, 65530, start, 16) + frame)
                sender.send(bytes(10) + HEADER + b"after")

        lab.opened("there", send)
        end, frames = time.monotonic() + 10, []
        while HEADER + b"after" not in frames and time.monotonic() < end:
            frames += [one for _, one in _received(near, 1, 1)]
        assert [len(one) for one in frames if len(one) > 1000] == []
        assert HEADER + b"after" in frames
        assert near.lost == 1


def test_reads_of_a_call_are_bounded_also_if_all_frames_are_lost(monkeypatch):
    class Flooded(ethernet.PacketInterface):
        def __init__(self):
            self.lost, self.reads = 0, 0
            self._socket = self
            self._buffer = bytearray(64)
            self._view = memoryview(self._buffer)

        def recvmsg_into(self, buffers, size):
            self.reads += 1
            assert self.reads <= 2 * ethernet.BATCH
            return 64, [], socket.MSG_TRUNC, None

    flooded = Flooded()
    assert flooded.receive() == []
    assert flooded.lost == flooded.reads == ethernet.BATCH
