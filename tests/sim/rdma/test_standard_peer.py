"""The node in Verilator beside a standard peer: rxe's rules, and captures that scapy has built."""

import functools
import random

import pytest
from scapy.contrib.roce import AETH, BTH, CNP_OPCODE, cnp
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from fanin.job import worker_endpoint
from fanin.link import LinkConfig
from fanin.rdma.facts import DROPPED, FIRST_QUEUE_PAIR, PRESETS, Connection, Ending, RdmaConfig, Region, Write
from fanin.rdma.golden.node import Node
from fanin.sim.rdma.cosim import SOURCE_PORT, Pair, RdmaCosim
from fanin.wire.ethernet import Endpoint, untagged
from fanin.wire.rdma import REFUSED_OPCODES, Opcode
from tests.peers import tshark_roce
from tests.rxe import RxePeer, colons, dotted
from tests.sim.rdma.peer import ScriptedPeer, StandardPeer, answers_in, peer_in
from tests.support import new_seed

pytestmark = pytest.mark.verilator

# The first is that of test_cosim: it is built once.
CONFIGS = {"512": RdmaConfig(), "128 vlan": RdmaConfig(**vars(PRESETS["tiny"]) | {"vlan": True})}
OWN, PEER = worker_endpoint(0), worker_endpoint(1)
NUMBER, PEER_NUMBER = FIRST_QUEUE_PAIR + 1, 0x45A7C
SPACE = 1 << 14
WRITES = 10
KEY, THEIR_KEY = 0xABCD, 0x1234
BAD = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)


@pytest.fixture(scope="module", params=["512", pytest.param("128 vlan", marks=pytest.mark.slow)])
def nodes(request):
    return RdmaCosim(CONFIGS[request.param], nodes=2, quiet=True)


def sizes(rng, count):
    return [rng.choice([0, 1, 255, 256, 257, 512, rng.randrange(SPACE // 2)]) for _ in range(count)]


@pytest.mark.slow  # beside the model it is a fast test: tests/fanin/rdma/golden/test_node.py
def test_both_write_into_one_another_over_a_bad_network(nodes, tmp_path):
    seed = new_seed()
    rng = random.Random(seed)
    vlan = 7 if nodes.config.vlan else None
    psns = [(1 << 24) - rng.randrange(1, 50), rng.getrandbits(24)]
    ours = Connection(PEER_NUMBER, *psns, mtu=256, window=16, retries=7, traffic_class=104, vlan=vlan,
                      priority=3 if vlan else 0)  # fmt: skip
    memory = rng.randbytes(2 * SPACE)
    peer = RxePeer(
        mac=PEER.mac, ip=PEER.ip, queue_pair=PEER_NUMBER, psn=psns[1], mtu=256, rkey=THEIR_KEY, vlan=vlan,
        memory=bytearray(rng.randbytes(2 * SPACE)),
    )  # fmt: skip
    peer.connect(mac=OWN.mac, ip=OWN.ip, queue_pair=NUMBER, psn=psns[0])
    models = [bytearray(memory), bytearray(peer.memory)]
    writes = []
    for tag, length in enumerate(sizes(rng, WRITES)):
        local, remote = SPACE + rng.randrange(SPACE - length), rng.randrange(SPACE - length)
        writes.append((1, Write(tag, local, remote, THEIR_KEY, length, tag if tag % 4 == 3 else None)))
        models[1][remote : remote + length] = memory[local : local + length]
        peer.receives += tag % 4 == 3
    told = []
    for tag, length in enumerate(sizes(rng, WRITES)):
        local, remote = SPACE + rng.randrange(SPACE - length), rng.randrange(SPACE - length)
        immediate = (
            rng.getrandbits(32) if tag in (3, WRITES - 1) else None
        )  # the last one says that all is there
        peer.post(tag, local, length, remote=remote, rkey=KEY, immediate=immediate)
        models[0][remote : remote + length] = peer.memory[local : local + length]
        told += [(1, immediate, length)] if immediate is not None else []
    kept = tmp_path / "peer"
    run = nodes.run(
        memories=[memory, b""],
        pairs=[Pair(((0, 1), (1, 1)), (ours, Connection(0)))],
        regions=[[Region(0, SPACE, KEY, frozenset([NUMBER]))], []],
        writes=[writes, []],
        arrivals=[len(told), 0],
        link=BAD,
        timeout=20_000,
        seed=seed,
        switch=functools.partial(StandardPeer, peer, kept),
    )
    peer = peer_in(kept)
    assert run.memories[0] == models[0], seed
    assert peer.memory == models[1], seed
    assert [(c.tag, c.ending) for c in run.completions[0]] == [(tag, Ending.DONE) for tag in range(WRITES)], (
        seed
    )
    assert [(a.index, a.immediate, a.length) for a in run.arrivals[0]] == told, seed
    assert set(peer.dropped) <= {"icrc", "mac", "no BTH", "vlan", "gid", "address"}, (
        seed
    )  # a bit is flipped anywhere
    assert not peer.errors, seed
    assert {state for _, state in peer.sending.completions} == {"success"}, seed
    said = ("went_back", "repeated", "early", "dropped_damaged", "dropped_foreign")
    assert sum(run.counters[0][name] for name in said) + peer.counted["duplicates"] > 0, seed


def frame(opcode, body=b"", *, index, psn=0, pad=0, tag=None, ip=None, source_port=0xC123, **fields):
    """A frame of the peer for a queue pair of the node."""
    bth = BTH(opcode=opcode, psn=psn, dqpn=FIRST_QUEUE_PAIR + index, padcount=pad, **fields)
    ether = Ether(dst=colons(OWN.mac), src=colons(PEER.mac))
    if tag is not None:
        ether /= Dot1Q(vlan=tag, prio=5)
    ip = ip or IP(src=dotted(PEER.ip), dst=dotted(OWN.ip), flags="DF", id=77, tos=106, ttl=3)
    return bytes(ether / ip / UDP(sport=source_port, dport=4791, chksum=0) / bth / Raw(body)).ljust(60, b"\0")


def reth(address, length, rkey=KEY):
    return address.to_bytes(8, "big") + rkey.to_bytes(4, "big") + length.to_bytes(4, "big")


def capture(rng, *, vlan):
    """What a standard peer sends, and other traffic: queue pair 0 goes on to the end."""
    only, first, middle, last = (Opcode[f"WRITE_{name}"] for name in ("ONLY", "FIRST", "MIDDLE", "LAST"))
    data = [rng.randbytes(256) for _ in range(3)]
    good = frame(only, reth(8, 5) + b"hello" + bytes(3), index=0, pad=3, ackreq=1)
    address = IP(src=dotted(PEER.ip), dst=dotted(OWN.ip))
    frames = [
        good,
        frame(first, reth(100, 600) + data[0], index=0, psn=1),
        frame(middle, data[1], index=0, psn=2, solicited=1),
        frame(last, data[2][:88], index=0, psn=3, ackreq=1, migreq=1, fecn=1, becn=1),
        good,  # once more
        frame(0x0B, reth(0, 0) + b"\0\0\0\x2a", index=0, psn=4, ackreq=1, pkey=0x7FFF),
        bytes(
            Ether(dst=colons(OWN.mac)) / address / UDP(sport=1, dport=4791, chksum=0) / cnp(FIRST_QUEUE_PAIR)
        ),
        bytes(Ether(dst=colons(OWN.mac)) / ARP(pdst=dotted(OWN.ip))),
        frame(0x64, bytes(8), index=0, psn=5),  # a datagram, as a connection manager sends it
        frame(0x10, bytes(20), index=0, psn=5),  # an answer to a read
        frame(0x11, b"\x1f\0\0\1", index=0, psn=9),  # an ACK of what was not sent
        frame(only, reth(0, 0), index=0, psn=5, ackreq=1, version=1),
        frame(only, reth(0, 0), index=0, psn=5, ackreq=1, pkey=0x8000),
        frame(only, reth(0, 4) + b"1234", index=0, psn=6, ackreq=1),  # one is missing
        frame(only, reth(0, 4) + b"1234", index=0, psn=5, ackreq=1),
        good[:-1] + bytes([good[-1] ^ 0x80]),
        frame(only, reth(0, 4) + b"1234", index=99 - FIRST_QUEUE_PAIR),
    ]
    for index, opcode in enumerate([0x0C, 0x13, 0x04] if vlan else REFUSED_OPCODES, start=1):
        frames.append(frame(opcode, reth(0, 64) + bytes(12), index=index, ackreq=1))
        frames.append(frame(only, reth(0, 4) + b"1234", index=index, psn=1))  # its queue pair has ended
    for n, size in enumerate(range(1, 20) if vlan else ()):  # ends that lie everywhere in a word, with a tag
        body, pad = rng.randbytes(size), -size % 4
        frames.append(frame(first, reth(1000, 256 + size) + data[0], index=0, psn=6 + 2 * n, tag=0))
        frames.append(frame(last, body + bytes(pad), index=0, psn=7 + 2 * n, tag=9, pad=pad, ackreq=1))
    return frames


def test_captures_are_answered_as_the_model_answers_them(nodes, tmp_path):
    rng = random.Random(new_seed())
    vlan = nodes.config.vlan
    memory = rng.randbytes(2 * SPACE)
    count = nodes.config.queue_pairs
    region = Region(0, SPACE, KEY, frozenset(range(FIRST_QUEUE_PAIR, FIRST_QUEUE_PAIR + count)))
    tag = 5 if vlan else None
    connections = [
        Connection(0x700 + index, mtu=256, retries=2, traffic_class=8 * index, vlan=tag)
        for index in range(count)
    ]
    frames = capture(rng, vlan=vlan)
    node = Node(OWN, bytearray(memory), [region])
    answers = []
    for index, connection in enumerate(connections):
        node.connect(index, connection, Endpoint(PEER.mac, PEER.ip, SOURCE_PORT + index))
    for sent in frames:
        node.receive(sent)
        answers += node.frames()
    run = nodes.run(
        memories=[memory, b""],
        pairs=[Pair(((0, i), (1, i)), (connection, Connection(0))) for i, connection in enumerate(connections)],
        regions=[[region], []],
        writes=[[(count - 1, Write(1, SPACE, 0, 0, 4))], []],  # sets the peer going; nobody answers it
        timeout=250 * len(frames),  # cycles: thrice that is longer than the frames take
        switch=functools.partial(ScriptedPeer, frames, tmp_path / "answers"),
    )
    got = [sent for sent in answers_in(tmp_path / "answers") if AETH in Ether(sent)]
    assert got == answers
    assert run.memories[0] == node.memory
    assert {name: run.counters[0][name] for name in DROPPED.values()} == {
        name: node.counters[name] for name in DROPPED.values()
    }
    assert node.counters["dropped_congestion"] == 1
    assert node.counters["dropped_opcode"] == 2
    for answer in got:  # built again by scapy, with its own checksum and ICRC
        ether = Ether(answer)
        del ether[IP].chksum
        ether[BTH].icrc = None
        assert bytes(ether) == answer
        assert (Dot1Q in ether) == vlan
    wrpcap(str(tmp_path / "answers.pcap"), [Ether(answer) for answer in got])
    assert [row[0] for row in tshark_roce(tmp_path / "answers.pcap")] == [Opcode.ACKNOWLEDGE] * len(got)
    assert CNP_OPCODE not in {Ether(untagged(answer))[BTH].opcode for answer in got}
