"""The model of the node beside a standard peer's, frame by frame, over a network that loses and repeats."""

import random
from dataclasses import replace

import pytest
from scapy.contrib.roce import BTH, cnp
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from fanin.host.rdma_setup import End, negotiate, source_port
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Region, Write
from fanin.rdma.golden.nic import Arrival, Completion, Status
from fanin.rdma.golden.node import Node
from fanin.wire.ethernet import Endpoint, tagged
from fanin.wire.rdma import REFUSED_OPCODES, Nak
from tests.rxe import RxePeer, colons, dotted
from tests.support import new_seed, slow

OWN = Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01)
SPACE = 1 << 15  # of either memory: what is written, and behind it what is sent
KEY, THEIR_KEY = 0xABCD, 0x1234
NUMBER = FIRST_QUEUE_PAIR + 2
OTHERS = (0x0D, 0x10, 0x12, 0x15, 0x2A, 0x64, 0xFF)  # answers to reads and atomics; reserved; UC, UD, CNP's kin


def connected(rng, *, vlan=None, mtu=1024, their_mtu=4096, **settings):
    """A node and a peer, each with its memory, set up as hosts do it."""
    region = Region(0, SPACE, KEY, frozenset([NUMBER]))
    node = Node(OWN, bytearray(rng.randbytes(2 * SPACE)), [region])
    psns = [rng.choice([0, (1 << 24) - rng.randrange(1, 40), rng.getrandbits(24)]) for _ in range(2)]
    ours = End.of_node(2, OWN, region, psn=psns[0], mtu=mtu, vlan=vlan)
    theirs = End(0x45A7C, psns[1], "::ffff:10.0.0.2", "0c:42:a1:00:00:02", their_mtu, THEIR_KEY, 0, SPACE, vlan)
    connection = negotiate(ours, theirs, **settings)
    node.connect(2, connection, theirs.endpoint(source_port(ours, theirs)))
    peer = RxePeer(
        mac=0x0C42A1000002, ip=0x0A000002, queue_pair=0x45A7C, psn=theirs.psn, mtu=connection.mtu, vlan=vlan,
        memory=bytearray(rng.randbytes(2 * SPACE)), rkey=THEIR_KEY,
    )  # fmt: skip
    peer.connect(mac=OWN.mac, ip=OWN.ip, queue_pair=ours.queue_pair, psn=ours.psn)
    return node, peer


def carry(node, peer, rng, *, loss=0.0, twice=0.0, limit=3000):
    """Frames both ways, until all writes have ended."""
    for _ in range(limit):
        to_peer, to_node = list(node.frames()), peer.send()
        if not to_peer and not to_node:
            if node.requester(2).idle and not peer.sending.pending:
                return
            node.timeout()
            peer.timeout()
        while to_peer or to_node:
            frames, way = (to_peer, 0) if to_peer else (to_node, 1)
            frame = frames.pop(0)
            for _ in range((rng.random() >= loss) * (1 + (rng.random() < twice))):
                if way:
                    node.receive(frame)
                    to_peer += node.frames()
                else:
                    to_node += peer.receive(frame)
    raise AssertionError("writes did not end")


def random_writes(rng, count):
    """Sizes around those of packets; local and remote addresses of any alignment."""
    for tag in range(count):
        length = rng.choice([0, 1, 3, 1023, 1024, 1025, 2048, rng.randrange(SPACE // 2)])
        local, remote = SPACE + rng.randrange(SPACE - length), rng.randrange(SPACE - length)
        yield tag, local, length, remote, rng.getrandbits(32) if rng.random() < 0.3 else None


@pytest.mark.parametrize(
    ("loss", "twice", "vlan"), [(0.0, 0.0, None), (0.05, 0.05, 7), *slow((0.0, 0.0, 7), (0.05, 0.05, None))]
)
def test_both_write_into_one_another_whatever_the_network_does(loss, twice, vlan):
    seed = new_seed()
    rng = random.Random(seed)
    node, peer = connected(rng, vlan=vlan, retries=7, priority=0 if vlan is None else 3)
    models = [bytearray(node.memory), bytearray(peer.memory)]
    ours, theirs = list(random_writes(rng, 12)), list(random_writes(rng, 12))
    peer.receives = sum(immediate is not None for *_, immediate in ours)
    for tag, local, length, remote, immediate in ours:
        node.post(2, Write(tag, local, remote, THEIR_KEY, length, immediate))
        models[1][remote : remote + length] = node.memory[local : local + length]
    for tag, local, length, remote, immediate in theirs:
        peer.post(tag, local, length, remote=remote, rkey=KEY, immediate=immediate)
        models[0][remote : remote + length] = peer.memory[local : local + length]
    carry(node, peer, rng, loss=loss, twice=twice)
    assert node.memory == models[0], seed
    assert peer.memory == models[1], seed
    assert node.requester(2).completions == [Completion(tag, Status.DONE) for tag in range(12)], seed
    assert peer.sending.completions == [(tag, "success") for tag in range(12)], seed
    assert not peer.errors, seed
    assert not peer.dropped, seed
    assert not node.counters, seed
    assert node.responder(2).arrivals == [Arrival(NUMBER, w[4], w[2]) for w in theirs if w[4] is not None]
    assert peer.arrivals == [(w[4], w[2]) for w in ours if w[4] is not None]
    assert loss or not peer.counted["duplicates"] + peer.counted["timeouts"], seed  # not in all seeds


def test_a_peer_without_a_receive_is_asked_again_until_it_has_one():
    node, peer = connected(random.Random(1), retries=7)
    for tag, immediate in enumerate([None, 5, None]):
        node.post(2, Write(tag, SPACE, 0, THEIR_KEY, 10, immediate))
    for _ in range(3):
        for frame in node.frames():
            for answer in peer.receive(frame):
                node.receive(answer)
        node.timeout()
    assert peer.counted["not ready"] == 3
    assert node.requester(2).completions == [Completion(0, Status.DONE)]
    peer.receives = 1
    carry(node, peer, random.Random(1))
    assert [done.status for done in node.requester(2).completions] == [Status.DONE] * 3


@pytest.mark.parametrize(("remote", "rkey", "why"), [(SPACE, KEY, "access"), (0, KEY + 1, "access")])
def test_a_peer_that_may_not_write_there_is_told_so(remote, rkey, why):
    node, peer = connected(random.Random(1))
    before = bytes(node.memory)
    peer.post(1, 0, 3000, remote=remote, rkey=rkey)
    peer.post(2, 0, 10, remote=0, rkey=KEY)
    carry(node, peer, random.Random(1))
    assert peer.sending.completions == [(1, f"remote {why} error"), (2, "flushed")]
    assert node.memory == before
    peer.failed = False
    node.receive(peer._frame(BTH(opcode=10, psn=0) / Raw(bytes(16))))
    assert node.counters == {"dropped_unconnected": 4}  # and the three behind the one that was refused


def test_and_so_are_we():
    node, peer = connected(random.Random(1))
    node.post(2, Write(1, 0, SPACE * 2, THEIR_KEY, 10))
    carry(node, peer, random.Random(1))
    assert node.requester(2).completions == [Completion(1, Status.ACCESS)]


def frame(opcode, body=b"", *, psn, ip=None, **fields):
    """A frame of the peer, by scapy."""
    bth = BTH(opcode=opcode, psn=psn, dqpn=NUMBER, **fields)
    header = ip or IP(src="10.0.0.2", dst="10.0.0.1")
    ether = Ether(dst=colons(OWN.mac), src="0c:42:a1:00:00:02")
    return bytes(ether / header / UDP(sport=0xD123, dport=4791) / bth / Raw(body)).ljust(60, b"\0")


@pytest.mark.parametrize("opcode", REFUSED_OPCODES)
def test_a_request_that_is_not_carried_out_is_refused_when_its_turn_comes(opcode):
    node, peer = connected(random.Random(1))
    psn = peer.sending.psn
    node.receive(frame(opcode, bytes(28), psn=(psn + 1) % (1 << 24)))
    node.receive(frame(opcode, bytes(28), psn=psn))
    early, refused = (transport(answer) for answer in node.frames())
    assert (early.psn, early.payload.syndrome) == (psn, Nak.SEQUENCE.syndrome)
    assert (refused.psn, refused.payload.syndrome) == (psn, Nak.INVALID_REQUEST.syndrome)
    node.receive(frame(opcode, bytes(28), psn=psn))
    assert not list(node.frames())
    assert node.counters == {"dropped_unconnected": 1}


def transport(answer):
    return Ether(answer)[BTH]


def test_all_else_is_dropped_and_counted_by_its_cause():
    node, peer = connected(random.Random(1))
    psn = peer.sending.psn
    plain = IP(src="10.0.0.2", dst="10.0.0.1")
    notice = Ether(dst=colons(OWN.mac)) / plain / UDP(sport=1, dport=4791, chksum=0) / cnp(NUMBER)
    good = frame(10, bytes(16) + b"1234", psn=psn)
    causes = {
        "dropped_foreign": [
            bytes(Ether(dst=colons(OWN.mac)) / ARP()),
            frame(10, bytes(16), psn=psn, ip=IP(src="10.0.0.2", dst="10.0.0.9")),
            frame(10, bytes(16), psn=psn, ip=replace_flags(plain)),
            bytes(60),
            b"\xff" * 13,
            tagged(tagged(good, vlan=1), vlan=2),
        ],
        "dropped_damaged": [good[:-1] + bytes([good[-1] ^ 1]), good[:-8], good + bytes(4)],
        "dropped_congestion": [bytes(notice)],
        "dropped_opcode": [frame(code, bytes(16), psn=psn) for code in OTHERS],
        "dropped_unconnected": [
            frame(10, bytes(16), psn=psn, pkey=0x8001),
            frame(10, bytes(16), psn=psn, version=1),
            bytes(Ether(frame(10, bytes(16), psn=psn)[:14]) / plain / UDP(sport=1, dport=4791)
                  / BTH(opcode=10, dqpn=0x105) / Raw(bytes(16))),
        ],
    }  # fmt: skip
    for name, frames in causes.items():
        before = dict(node.counters)
        for sent in frames:
            node.receive(sent)
        assert node.counters == before | {name: len(frames)}
    assert not list(node.frames())
    node.receive(tagged(frame(10, bytes(16), psn=psn, ackreq=1), vlan=0, priority=6))  # a tag for the priority
    assert len(list(node.frames())) == 1


def replace_flags(ip):
    """More fragments follow."""
    other = ip.copy()
    other.flags = "MF"
    return other


def test_a_notice_does_not_need_a_connection_nor_end_one():
    node, peer = connected(random.Random(1))
    node.receive(bytes(Ether(dst=colons(OWN.mac)) / IP(src="10.0.0.2", dst=dotted(OWN.ip)) / UDP(dport=4791)
                       / cnp(0x99)))  # fmt: skip
    assert node.counters == {"dropped_congestion": 1}
    peer.post(1, 0, 100, remote=0, rkey=KEY)
    carry(node, peer, random.Random(1))
    assert peer.sending.completions == [(1, "success")]


def test_the_smaller_mtu_is_kept_to():
    for ours, theirs in ((256, 4096), (4096, 512)):
        node, peer = connected(random.Random(1), mtu=ours, their_mtu=theirs)
        assert peer.mtu == min(ours, theirs)
        node.post(2, Write(1, SPACE, 0, THEIR_KEY, 5000))
        sizes = [len(sent) for sent in node.frames()]
        assert max(sizes) == min(ours, theirs) + 74
        assert replace(node.requester(2).connection, mtu=min(ours, theirs)) == node.requester(2).connection
