"""RoCEv2 packets, beside scapy's and tshark's reading of them."""

import random
from dataclasses import replace

import pytest
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import (
    ACK_SYNDROME,
    ROCE_PORT,
    Fault,
    Nak,
    Opcode,
    RdmaPacket,
    decode,
    encode,
    header_bytes,
    judge,
)
from tests.peers import tshark_roce
from tests.support import new_seed

HERE = Endpoint(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=49152)
THERE = Endpoint(mac=0x02_00_00_00_00_02, ip=0x0A_00_00_02)
EMPTY = 20 + 8 + 12 + 4  # IPv4, UDP, BTH, ICRC


def random_packet(rng, opcode=None):
    """A packet of any kind, with what its opcode has and nothing else."""
    opcode = opcode or rng.choice(list(Opcode))
    common = {"queue_pair": rng.getrandbits(24), "psn": rng.getrandbits(24)}
    if opcode is Opcode.ACKNOWLEDGE:
        syndrome = rng.choice([ACK_SYNDROME, *(nak.syndrome for nak in Nak)])
        return RdmaPacket(opcode, **common, syndrome=syndrome, msn=rng.getrandbits(24))
    packet = RdmaPacket(
        opcode, **common, acknowledge=rng.random() < 0.5, payload=rng.randbytes(rng.randrange(300))
    )
    if opcode.begins:
        packet = replace(
            packet, address=rng.getrandbits(64), rkey=rng.getrandbits(32), length=rng.getrandbits(32)
        )
    return replace(packet, immediate=rng.getrandbits(32)) if opcode.has_immediate else packet


@pytest.mark.parametrize("opcode", Opcode)
def test_what_is_encoded_is_decoded(opcode):
    seed = new_seed()
    rng = random.Random(seed)
    for _ in range(50):
        packet = random_packet(rng, opcode)
        frame = encode(packet, source=HERE, destination=THERE)
        assert decode(frame) == packet, seed
        assert decode(frame + b"\xa5" * rng.randrange(1, 9)) == packet, "bytes behind the length"


def test_scapy_reads_our_packets_and_computes_their_icrc():
    seed = new_seed()
    rng = random.Random(seed)
    for _ in range(300):
        packet = random_packet(rng)
        frame = encode(packet, source=HERE, destination=THERE)
        frame = frame[: Ether(frame)[IP].len + 14]  # scapy would count padding into the ICRC
        ether = Ether(frame)
        bth = ether[BTH]
        assert (bth.opcode, bth.dqpn, bth.psn) == (packet.opcode, packet.queue_pair, packet.psn), seed
        assert bth.ackreq == packet.acknowledge
        assert bth.padcount == -len(packet.payload) % 4
        assert ether[UDP].dport == ROCE_PORT
        assert ether[UDP].sport == HERE.port
        if packet.opcode == Opcode.ACKNOWLEDGE:
            assert (ether[AETH].syndrome, ether[AETH].msn) == (packet.syndrome, packet.msn)
        # built again by scapy, with its own checksum and ICRC
        del ether[IP].chksum
        bth.icrc = None
        assert bytes(ether) == frame, seed


def test_packets_that_scapy_builds_are_read():
    payload = bytes(range(100))
    reth = (0x1122334455667788).to_bytes(8, "big") + (7).to_bytes(4, "big") + len(payload).to_bytes(4, "big")
    frame = bytes(
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / IP(src="10.0.0.1", dst="10.0.0.2", tos=104, ttl=9)
        / UDP(sport=5555, dport=ROCE_PORT, chksum=0)
        / BTH(opcode=Opcode.WRITE_ONLY, dqpn=17, psn=99, ackreq=1)
        / Raw(reth + payload)
    )
    expected = RdmaPacket(
        Opcode.WRITE_ONLY, 17, 99, True, address=0x1122334455667788, rkey=7, length=100, payload=payload
    )
    assert decode(frame) == expected


def test_a_router_s_changes_leave_the_icrc_right_and_any_other_flips_it():
    seed = new_seed()
    rng = random.Random(seed)
    packet = random_packet(rng, Opcode.WRITE_ONLY)
    frame = encode(packet, source=HERE, destination=THERE)
    routed = Ether(frame)
    routed[IP].ttl, routed[IP].tos = 3, 0xFF
    del routed[IP].chksum
    assert decode(bytes(routed)) == packet
    marked = bytearray(frame)
    marked[14 + 20 + 8 + 4] = 0xC0  # FECN, BECN
    assert decode(bytes(marked)) == packet
    variable = {14 + 20 + 8 + 4, 14 + 20 + 6, 14 + 20 + 7}  # and the UDP checksum
    for bit in range(8 * 14, 8 * (14 + EMPTY + 16 + len(packet.payload))):
        if bit // 8 not in variable:
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            assert decode(bytes(damaged)) is None, f"seed {seed}, bit {bit}"


def test_what_is_cut_short_or_of_another_kind_is_none_of_ours():
    rng = random.Random(1)
    frame = encode(random_packet(rng, Opcode.WRITE_FIRST), source=HERE, destination=THERE)
    assert all(decode(frame[:size]) is None for size in range(len(frame)))
    packet = random_packet(rng, Opcode.ACKNOWLEDGE)
    for change in ({"partition": 0x7FFE}, {"version": 1}):
        assert judge(encode(replace(packet, **change), source=HERE, destination=THERE)) == Fault.UNKNOWN
    limited = replace(packet, partition=0x7FFF)
    assert decode(encode(limited, source=HERE, destination=THERE)) == limited


def test_headers_are_as_long_as_the_standard_s():
    assert header_bytes(Opcode.WRITE_MIDDLE) == 14 + 20 + 8 + 12
    assert header_bytes(Opcode.WRITE_FIRST) == 14 + 20 + 8 + 12 + 16
    assert header_bytes(Opcode.WRITE_ONLY_IMMEDIATE) == 14 + 20 + 8 + 12 + 16 + 4


def test_tshark_dissects_every_kind_without_a_complaint(tmp_path):
    rng = random.Random(2)
    packets = [random_packet(rng, opcode) for opcode in Opcode for _ in range(5)]
    pcap = tmp_path / "roce.pcap"
    wrpcap(str(pcap), [Ether(encode(packet, source=HERE, destination=THERE)) for packet in packets])
    assert tshark_roce(pcap) == [(p.opcode, p.psn, p.queue_pair, _icrc(p)) for p in packets]


def _icrc(packet):
    """The last four bytes in front of a short frame's padding, as tshark shows them."""
    frame = encode(packet, source=HERE, destination=THERE)
    return int.from_bytes(frame[: Ether(frame)[IP].len + 14][-4:], "big")
