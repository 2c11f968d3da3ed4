"""What may be asked of a node of one-sided writes, and what is refused, whatever the node is."""

from pathlib import Path

import pytest

from fanin.rdma.driver import Arrival
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Ending, Region
from fanin.sim.nic import rdma_control
from fanin.sim.nic.address import Address
from fanin.sim.nic.rdma_control import RdmaControl
from fanin.sim.nic.rdma_settings import Peer, RdmaSettings, path_mtu
from fanin.wire.ethernet import Endpoint

IP, MAC = "10.0.0.2", "02:00:00:00:00:02"
SIZE = 4096


class FakeNode:
    """Notes what it is asked for; a write ends as it says."""

    def __init__(self):
        self.connected, self.regions, self.posted = [], [], []
        self.ending = Ending.DONE

    def connect(self, index, connection, peer, then):
        self.connected.append((index, connection, peer))
        then()

    def set_regions(self, regions, then):
        self.regions = list(regions)
        then()

    def post(self, index, write, then):
        self.posted.append((index, write))
        then(self.ending)

    def read_counters(self, then):
        then({"sent": 3})


class FakeAddress(Address):
    """Knows the MACs that it is given."""

    def __init__(self, **known):
        super().__init__(Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01))
        self.known = known

    def mac_of(self, ip):
        return self.known.get(hex(ip))


@pytest.fixture
def node():
    return FakeNode()


@pytest.fixture
def control(node):
    region = Region(0, SIZE, 1, frozenset({FIRST_QUEUE_PAIR}))
    settings = RdmaSettings(
        PRESETS["tiny"], "a0", Endpoint(1, 2), Path("/m"), SIZE, 1024, (region,), (Peer(0x0A_00_00_09),)
    )
    return RdmaControl(node, settings, FakeAddress(), kind="rtl")


def ask(control, do, **fields):
    answers = []
    control.handle({"do": do, **fields}, answers.append)
    return answers[0] if answers else None


def _byte(rkey, base):
    return {"rkey": rkey, "base": base, "length": 1}


def test_what_is_left_out_has_a_default(control, node):
    assert ask(control, "connect", ip=IP, mac=MAC) == {}
    assert ask(control, "write", length=100) == {"ending": "done"}
    ((index, connection, peer),) = node.connected
    assert (index, connection.peer, connection.mtu) == (0, FIRST_QUEUE_PAIR, 1024)
    assert (peer.mac, peer.ip) == (0x02_00_00_00_00_02, 0x0A_00_00_02)
    ((index, write),) = node.posted
    assert (index, write.local, write.remote, write.rkey, write.length, write.immediate) == (
        0,
        0,
        0,
        1,
        100,
        None,
    )
    node.ending = Ending.ACCESS
    assert ask(control, "write", length=1, immediate=7) == {"ending": "access"}
    assert ask(control, "counters") == {"counters": {"sent": 3}}
    (pair,) = ask(control, "info")["connected"]
    assert pair == {"pair": 0, "ip": IP, "peer": 256, "mtu": 1024, "failed": "access"}


def test_a_queue_pair_without_a_mac_waits_and_a_new_connection_clears_a_failure(control, node):
    control.begin()
    assert ask(control, "info")["waiting"] == [{"pair": 0, "ip": "10.0.0.9"}]
    said = ask(control, "write", length=1)["error"]
    assert said == "pair 0 is not connected: 10.0.0.9 has not answered to ARP yet"
    for ending, failed in ((Ending.RETRIES, "retries"), (Ending.DONE, None)):
        assert ask(control, "connect", ip=IP, mac=MAC) == {}
        node.ending = ending
        ask(control, "write", length=1)
        (pair,) = ask(control, "info")["connected"]
        assert pair["failed"] == failed
    assert ask(control, "info")["waiting"] == []


@pytest.mark.parametrize(
    ("do", "fields", "message"),
    [
        ("read", {}, "do must be one of info, connect, regions, write, arrival, counters, not 'read'"),
        ("info", {"x": 1}, "x: no such field"),
        ("info", {"x\ny": 1}, r"x\ny: no such field"),
        ("connect", {}, "ip must be the peer's IPv4 address, as text"),
        ("connect", {"ip": "10.0.0"}, "ip 10.0.0: is no IPv4 address"),
        ("connect", {"ip": "224.0.0.1"}, "ip 224.0.0.1: is no host's address"),
        ("connect", {"ip": IP, "mac": "1"}, "mac 1: is no MAC address"),
        ("connect", {"ip": IP, "mac": "010000000000"}, "mac 010000000000: is a group's"),
        ("connect", {"ip": IP, "mac": MAC, "pair": 4}, "pair must be 0 to 3, not 4"),
        ("connect", {"ip": IP, "mac": MAC, "pair": True}, "pair must be an integer, not True"),
        ("connect", {"ip": IP, "mac": MAC, "mtu": 2048}, "mtu must be at most 1024, for the interface's"),
        ("connect", {"ip": IP, "mac": MAC, "mtu": 1000}, "mtu must be one of 256"),
        ("connect", {"ip": IP, "mac": MAC, "send_psn": 1 << 24}, "send_psn must be 0 to 16777215"),
        ("write", {}, "length: a write needs one"),
        ("write", {"length": SIZE + 1}, "local: 4097 bytes from 0 exceed memory, which has 4096"),
        ("write", {"length": 1, "local": SIZE}, "local: 1 bytes from 4096 exceed memory"),
        ("write", {"length": -1}, "length must be 0 to"),
        ("write", {"length": 1, "remote": -1}, "remote must be 0 to"),
        ("write", {"length": 1, "immediate": 1 << 32}, "immediate must be 0 to 4294967295"),
        ("write", {"length": 1, "pair": 1}, "pair 1 is not connected"),
        ("regions", {}, "regions must be a list of objects"),
        ("regions", {"regions": [{}]}, "rkey: a region needs one"),
        ("regions", {"regions": [{"rkey": 1, "length": SIZE + 1}]}, "region 0x1: 4097 bytes from 0 exceed"),
        ("regions", {"regions": [{"rkey": 1, "pairs": [9]}]}, "pair must be 0 to 3, not 9"),
        ("regions", {"regions": [{"rkey": 1, "length": 0}]}, "region 0x1: 0 bytes from 0x0 exceed"),
        ("regions", {"regions": [_byte(1, 7), _byte(2, 7)]}, "regions 0x1 and 0x2 overlap at 0x7"),
        ("regions", {"regions": [_byte(1, 0), _byte(1, 1)]}, "two regions have the key 0x1"),
        ("regions", {"regions": [_byte(n, n) for n in range(5)]}, "regions must be at most 4, not 5"),
        ("arrival", {"seconds": -1}, "seconds must be 0 to 3600, not -1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line_and_nothing_is_done(control, node, do, fields, message):
    answer = ask(control, do, **fields)
    assert answer["error"].startswith(message)
    assert [node.connected, node.posted, node.regions] == [[], [], []]


def test_a_peer_is_connected_once_its_mac_is_known(control, node):
    control.begin()
    assert node.regions[0].rkey == 1
    control.serve()
    assert not node.connected
    control._address.known["0xa000009"] = 5
    control.serve()
    assert [(index, peer.mac) for index, _, peer in node.connected] == [(0, 5)]


def test_a_connect_to_whom_no_arp_finds_ends(control, node, monkeypatch):
    now = 100.0
    monkeypatch.setattr(rdma_control.time, "monotonic", lambda: now)
    answers = []
    control.handle({"do": "connect", "ip": IP}, answers.append)
    control.serve()
    assert not answers
    now += 11
    control.serve()
    assert answers == [{"error": "no answer to ARP from 10.0.0.2; give its mac"}]


def test_messages_go_to_those_who_wait_in_turn(control, monkeypatch):
    now = 100.0
    monkeypatch.setattr(rdma_control.time, "monotonic", lambda: now)
    first, second, third = [], [], []
    control.handle({"do": "arrival", "seconds": 60}, first.append)
    control.handle({"do": "arrival", "seconds": 1}, second.append)
    now += 2
    control.serve()
    assert (first, second) == ([], [{"arrival": None}])
    control.add_arrival(Arrival(0, 5, 10))
    control.add_arrival(Arrival(1, 6, 11))
    assert first == [{"arrival": {"pair": 0, "immediate": 5, "length": 10}}]
    control.handle({"do": "arrival"}, third.append)
    assert third == [{"arrival": {"pair": 1, "immediate": 6, "length": 11}}]


def test_the_path_mtu_fits_the_interfaces():
    assert [path_mtu(mtu) for mtu in (100, 320, 1500, 4159, 4160, 9000)] == [0, 256, 1024, 2048, 4096, 4096]
