"""Nodes of one-sided writes in Verilator: memory as the model says, whatever the network and the peer do."""

import functools
import math
import random

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from fanin.base.errors import InputError
from fanin.job import worker_endpoint
from fanin.link import LinkConfig
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Connection, Ending, RdmaConfig, Region, Write
from fanin.rdma.golden.nic import Responder
from fanin.sim.rdma.cosim import Pair, RdmaCosim
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import PATH_MTUS, Nak, Opcode, RdmaPacket, decode, encode
from tests.peers import tshark_roce
from tests.sim.rdma.peer import ScriptedPeer, answers_in
from tests.support import new_seed

CONFIG = RdmaConfig()
BAD = LinkConfig(drop=0.01, duplicate=0.01, reorder=0.01, corrupt=0.01)
MIB = 1 << 20
GUARD = 64  # bytes between regions
SPACE = 2 * MIB  # of a region
KEY = 0x1234_0000
pytestmark = pytest.mark.verilator


@pytest.fixture(scope="module")
def nodes():
    return RdmaCosim(CONFIG, nodes=2, quiet=True)


def random_pair(rng, index):
    psns = [rng.choice([0, (1 << 24) - rng.randrange(1, 50), rng.getrandbits(24)]) for _ in range(2)]
    return Pair.of(
        (0, index), (1, 15 - index), psns=tuple(psns), mtu=rng.choice(PATH_MTUS), window=32, retries=7
    )


def region_of(index):
    """Where the queue pair of that place writes, on either node."""
    return Region(GUARD + index * (SPACE + GUARD), SPACE, KEY + index, frozenset([FIRST_QUEUE_PAIR + index]))


def random_write(rng, tag, to, local, *, immediate):
    size = round(math.exp(rng.uniform(0, math.log(MIB))))
    region = region_of(to)
    immediate = rng.getrandbits(32) if immediate else None
    remote = region.base + rng.randrange(SPACE - size + 1)
    return Write(tag, local + rng.randrange(SPACE - size + 1), remote, region.rkey, size, immediate)


def random_writes(nodes, count, seed):
    """Writes in both directions over 16 queue pairs of many MTUs, over a bad network."""
    rng = random.Random(seed)
    local = GUARD + 16 * (SPACE + GUARD)  # behind all regions: what is sent
    memories = [bytes(local) + rng.randbytes(SPACE) for _ in range(2)]
    pairs = [random_pair(rng, index) for index in range(16)]
    writes, models, told = [[], []], [bytearray(memory) for memory in memories], [[], []]
    for tag in range(count):
        node, index = rng.randrange(2), rng.randrange(16)
        # the hosts take messages with immediate data at the end: no more of them than a node keeps
        write = random_write(rng, tag, 15 - index, local, immediate=tag % (count // 80) == 0)
        writes[node].append((index, write))
        models[1 - node][write.remote : write.remote + write.length] = memories[node][
            write.local : write.local + write.length
        ]
        if write.immediate is not None:
            told[1 - node].append((15 - index, write.immediate, write.length))
    run = nodes.run(
        memories=memories,
        pairs=pairs,
        regions=[[region_of(index) for index in range(16)]] * 2,
        writes=writes,
        arrivals=[len(own) for own in told],
        link=BAD,
        timeout=20_000,
        seed=seed,
    )
    for node in range(2):
        assert run.memories[node] == models[node], seed
        for index in range(16):
            posted = [write.tag for place, write in writes[node] if place == index]
            said = [c.tag for c in run.completions[node] if c.index == index]
            assert said == posted, seed
        assert {c.ending for c in run.completions[node]} == {Ending.DONE}
        arrived = [(a.index, a.immediate, a.length) for a in run.arrivals[node]]
        assert sorted(arrived) == sorted(told[node]), seed
    return run


@pytest.mark.slow
def test_a_thousand_random_writes_over_a_bad_network(nodes):
    run = random_writes(nodes, 1000, new_seed())
    for counters in run.counters:
        assert counters["went_back"] > 0
        assert counters["repeated"] > 0
        assert counters["early"] > 0


@pytest.mark.slow
def test_ten_thousand_random_writes_over_a_bad_network(nodes):
    random_writes(nodes, 10_000, new_seed())


class Violator:
    """Packets for one node, each queue pair with its own; what the golden responders answer and write."""

    def __init__(self, rng):
        self.rng = rng
        self.memory = bytearray(rng.randbytes(1 << 16))
        self.before = bytes(self.memory)
        self.regions = [
            Region(0x1000, 0x1000, KEY, frozenset(range(FIRST_QUEUE_PAIR, FIRST_QUEUE_PAIR + 16))),
            Region(0x4000, 0x1000, KEY + 1, frozenset()),  # nobody may write it
            Region(0x8000, 0x1000, KEY + 2, frozenset([FIRST_QUEUE_PAIR + 15])),
        ]
        self.packets, self.answers, self.responders = [], [], {}

    def send(self, index, opcode, psn, size, *, address=0x1000, rkey=KEY, length=None, acknowledge=True):
        """A packet, and what the model makes of it."""
        begins = Opcode(opcode).begins
        packet = RdmaPacket(
            opcode, FIRST_QUEUE_PAIR + index, psn, acknowledge, address * begins, rkey * begins,
            (size if length is None else length) * begins, payload=self.rng.randbytes(size),
        )  # fmt: skip
        number = FIRST_QUEUE_PAIR + index
        if number not in self.responders:
            connection = Connection(0x700 + index, mtu=256)
            self.responders[number] = Responder(number, connection, self.memory, self.regions)
        self.packets.append(packet)
        answer = self.responders[number].receive(packet)
        if answer is not None:
            self.answers.append(answer)


def violations(rng):
    """One violation a queue pair, good packets around them."""
    v = Violator(rng)
    first, middle, last, only = Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY
    v.send(0, only, 0, 100)
    v.send(0, only, 1, 100, rkey=KEY + 9)  # no such key
    v.send(0, only, 2, 100)  # the queue pair has ended
    v.send(1, only, 0, 100, address=0x1FFF)  # ends behind the region
    v.send(2, only, 0, 100, address=0x0FFF)  # begins before it
    v.send(3, only, 0, 100, address=0x4000, rkey=KEY + 1)  # no permission
    v.send(4, only, 0, 100, address=0x8000, rkey=KEY + 2)  # another queue pair's
    v.send(15, only, 0, 100, address=0x8000, rkey=KEY + 2)  # its own
    v.send(5, only, 1, 100)  # ahead: one is missing
    v.send(5, only, 2, 100)  # asked for only once
    v.send(5, only, 0, 64, address=0x1800)
    v.send(5, only, 0, 64, address=0x1900)  # once more, elsewhere: acknowledged, not written
    v.send(6, middle, 0, 256)  # nothing has begun
    v.send(7, first, 0, 256, length=600)
    v.send(7, only, 1, 100)  # in the middle of a message
    v.send(8, first, 0, 255, length=600)  # shorter than the MTU
    v.send(9, only, 0, 300)  # longer than it
    v.send(10, first, 0, 256, length=600)
    v.send(10, middle, 1, 256)
    v.send(10, last, 2, 87)  # one byte less than was said
    v.send(11, first, 0, 256, length=600, address=0x1A00)
    v.send(11, middle, 1, 256)
    v.send(11, last, 2, 88)  # all is well
    v.send(12, only, 0, 100, address=(1 << 64) - 50)  # around the end of the address space
    v.send(13, only, 0, 100, length=(1 << 32) - 1)  # more than a message may have
    v.send(14, last, 0, 0)  # nothing has begun, and nothing comes
    return v


def test_a_violation_is_refused_as_the_model_refuses_it_and_changes_no_byte(nodes, tmp_path):
    v = violations(random.Random(new_seed()))
    own, peer = worker_endpoint(0), worker_endpoint(1)
    source = Endpoint(peer.mac, peer.ip, 0xC123)
    frames = [encode(packet, source=source, destination=own) for packet in v.packets]
    kept = tmp_path / "answers"
    run = scripted(nodes, v, frames, kept)
    answers = [decode(frame) for frame in answers_in(kept)]
    shown = [(a.queue_pair, a.psn, a.syndrome, a.msn) for a in answers if a.opcode == Opcode.ACKNOWLEDGE]
    assert sorted(shown) == sorted((a.queue_pair, a.psn, a.syndrome, a.msn) for a in v.answers)
    assert {a.syndrome for a in v.answers} >= {Nak(n).syndrome for n in range(3)}
    assert run.memories[0] == v.memory
    assert v.memory != v.before


def scripted(nodes, v, frames, kept):
    """Node 0 among scripted frames: its one write sets the peer going, and fails as nobody answers it."""
    trigger = Write(1, 0, 0, 0, 4)
    pairs = [
        Pair(((0, index), (1, index)), (Connection(0x700 + index, mtu=256, retries=2), Connection(0)))
        for index in range(16)
    ]
    return nodes.run(
        memories=[v.before, b""],
        pairs=pairs,
        regions=[v.regions, []],
        writes=[[(15, trigger)], []],
        timeout=40_000,
        switch=functools.partial(ScriptedPeer, frames, kept),
    )


def test_packets_that_scapy_builds_are_written(nodes, tmp_path):
    rng = random.Random(new_seed())
    v = Violator(rng)
    own, peer = worker_endpoint(0), worker_endpoint(1)
    frames = []
    for psn, size in enumerate([1, 2, 3, 4, 100, 256]):
        payload, pad = rng.randbytes(size), -size % 4
        reth = (0x1000 + 300 * psn).to_bytes(8, "big") + KEY.to_bytes(4, "big") + size.to_bytes(4, "big")
        bth = BTH(opcode=0x0A, padcount=pad, dqpn=FIRST_QUEUE_PAIR, ackreq=1, psn=psn, migreq=1)
        ethernet = Ether(dst=colons(own.mac), src=colons(peer.mac))
        ip = IP(src=dotted(peer.ip), dst=dotted(own.ip))
        frames.append(bytes(ethernet / ip / UDP(sport=0xC123) / bth / (reth + payload + bytes(pad))))
        v.memory[0x1000 + 300 * psn : 0x1000 + 300 * psn + size] = payload
    run = scripted(nodes, v, frames, tmp_path / "answers")
    assert run.memories[0] == v.memory
    assert run.counters[0]["taken"] == len(frames)


def test_every_packet_of_the_nic_is_read_by_scapy_and_by_tshark(nodes, tmp_path):
    rng = random.Random(new_seed())
    # Wireshark takes a payload that begins with an EtherType and two zeros for IP over InfiniBand, and one of a
    # byte or two is padded with zeros: no EtherType that it knows has two bytes of these.
    memory = bytes(0xE0 | byte & 0x0F for byte in rng.randbytes(1 << 16))
    region = Region(0, 1 << 16, KEY, frozenset([FIRST_QUEUE_PAIR]))
    sizes = [0, 1, 2, 3, 4, 255, 256, 257, 600, 1024, 5000]
    writes = [
        Write(n, rng.randrange(1 << 15), rng.randrange(1 << 15), KEY, size, n if n % 2 else None)
        for n, size in enumerate(sizes)
    ]
    pcap = tmp_path / "rdma.pcap"
    pairs = [Pair.of((0, 0), (1, 0), mtu=256)]
    posted = [[(0, write) for write in writes], []]
    nodes.run(memories=[memory] * 2, pairs=pairs, regions=[[], [region]], writes=posted, pcap=pcap,
              arrivals=[0, len(sizes) // 2])  # fmt: skip
    frames = [bytes(packet) for packet in rdpcap(str(pcap))]
    seen = set()
    for frame in frames:
        ether = Ether(frame)
        seen.add(Opcode(ether[BTH].opcode))
        del ether[IP].chksum
        ether[BTH].icrc = None
        assert bytes(ether) == frame  # built again, with scapy's own checksum and ICRC
    assert seen == set(Opcode)
    said = [(decode(f).opcode, decode(f).psn, decode(f).queue_pair) for f in frames]
    assert [row[:3] for row in tshark_roce(pcap)] == said


def colons(mac):
    return mac.to_bytes(6, "big").hex(":")


def dotted(ip):
    return ".".join(map(str, ip.to_bytes(4, "big")))


def test_a_peer_that_is_not_there_ends_the_writes_with_why(nodes):
    pairs = [Pair.of((0, 0), (1, 0), retries=1)]
    write = [(0, Write(tag, 0, 0, 0, 100)) for tag in range(3)]
    other = [Pair(((0, 0), (1, 1)), pairs[0].connections)]  # node 1 has connected another place
    run = nodes.run(memories=[bytes(4096)] * 2, pairs=other, regions=[[], []], writes=[write, []], timeout=1000)
    assert [c.ending for c in run.completions[0]] == [Ending.RETRIES, Ending.FLUSHED, Ending.FLUSHED]
    assert run.counters[1]["dropped_unconnected"] >= 2


def test_bad_regions_and_places_are_refused_by_the_driver():
    driver = RdmaDriver(CONFIG)
    region = Region(0, 4096, 1, frozenset([FIRST_QUEUE_PAIR]))
    limit = 1 << CONFIG.address_width
    for bad, why in (
        ([region, Region(4095, 1, 2, frozenset())], "overlap"),
        ([Region(limit - 1, 2, 1, frozenset())], "exceed"),
        ([region, Region(8192, 1, 1, frozenset())], "two regions have the key"),
        ([Region(n, 1, n, frozenset()) for n in range(17)], "at most 16"),
        ([Region(0, 1, 1, frozenset([FIRST_QUEUE_PAIR + 16]))], "index must be 0 to 15"),
    ):
        with pytest.raises(ValueError, match=why):
            driver.set_regions(bad)
    with pytest.raises(ValueError, match="index"):
        driver.post(16, Write(0, 0, 0, 0, 1))
    with pytest.raises(InputError, match="nodes"):
        RdmaCosim(CONFIG, nodes=0)
