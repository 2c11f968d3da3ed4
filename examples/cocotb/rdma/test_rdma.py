"""The NIC of one-sided writes, and a peer in Python: its memory, and the peer's, are what golden says.

The peer is ``fanin.rdma.golden.nic``; scapy builds its frames, reads the NIC's, and computes the ICRC of both.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import cocotb
from bench import Bench
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiRam
from compare import check_equal
from frames import RDMA_HEADERS, ip, mac, raw_frame
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fanin.job import worker_endpoint
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Connection, Ending, Region, Write
from fanin.rdma.golden.nic import Requester, Responder
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import ROCE_PORT, Opcode, RdmaPacket

MEMORY = 1 << 14  # bytes, at either end
RKEY = 0x5EED
REGION = Region(0x1000, 0x2000, RKEY, frozenset({FIRST_QUEUE_PAIR}))
OWN, PEER = worker_endpoint(0), worker_endpoint(1)
SOURCE_PORT = 0xC000
HERE = Connection(FIRST_QUEUE_PAIR, send_psn=1000, receive_psn=5000, mtu=256, window=8)
THERE = Connection(FIRST_QUEUE_PAIR, send_psn=5000, receive_psn=1000, mtu=256, window=8)


def frame_of(packet: RdmaPacket, source: Endpoint, destination: Endpoint) -> bytes:
    """Return a packet, built by scapy."""
    pad = -len(packet.payload) % 4
    ether = Ether(dst=mac(destination.mac), src=mac(source.mac))
    bth = BTH(
        opcode=packet.opcode,
        migreq=1,
        padcount=pad,
        dqpn=packet.queue_pair,
        ackreq=packet.acknowledge,
        psn=packet.psn,
    )
    frame = (
        ether
        / IP(src=ip(source.ip), dst=ip(destination.ip), id=0, flags="DF")
        / UDP(sport=SOURCE_PORT, dport=ROCE_PORT, chksum=0)
    )
    frame /= bth
    if packet.opcode == Opcode.ACKNOWLEDGE:
        frame /= AETH(syndrome=packet.syndrome, msn=packet.msn)
    elif header := RDMA_HEADERS.get(Opcode(packet.opcode)):
        frame /= header(**{field.name: getattr(packet, field.name) for field in header.fields_desc})
    return raw_frame(frame / Raw(packet.payload + bytes(pad)))


def packet_of(frame: bytes) -> RdmaPacket:
    """Parse a frame of the NIC with scapy. Raises AssertionError if scapy computes another ICRC."""
    ether = Ether(frame)
    bth, again = ether[BTH], Ether(frame)
    again[BTH].icrc = None
    assert Ether(bytes(again))[BTH].icrc == bth.icrc, "ICRC"
    header = bth.payload if not isinstance(bth.payload, Raw) else None
    fields = dict(header.fields) if header else {}
    body = bytes(ether[Raw].load) if Raw in ether else b""
    payload = body[: len(body) - bth.padcount]
    return RdmaPacket(bth.opcode, bth.dqpn, bth.psn, acknowledge=bool(bth.ackreq), payload=payload, **fields)


def carry_out(writes: Sequence[Write], requester: Requester, responder: Responder) -> list[RdmaPacket]:
    """Execute writes in the golden model without losses, into the responder's memory. Return the packets."""
    sent = []
    for write in writes:
        requester.post(write)
    while not requester.idle:
        for packet in requester.packets():
            sent.append(packet)
            if answer := responder.receive(packet):
                requester.receive(answer)
    return sent


class Peer:
    """Peer at the NIC's MAC: the golden requester and responder, with their own memory."""

    def __init__(self, bench: Bench):
        self.memory = bytearray(random.randbytes(MEMORY))
        self.requester = Requester(THERE, self.memory)
        self.responder = Responder(FIRST_QUEUE_PAIR, THERE, self.memory, [REGION])
        self._source, self._sink = bench.source("mac_rx"), bench.sink("mac_tx")
        cocotb.start_soon(self._receive())

    def send(self) -> None:
        """Send all frames that the window allows."""
        for packet in self.requester.packets():
            self._source.send_nowait(frame_of(packet, PEER, OWN))

    async def _receive(self) -> None:
        while True:
            packet = packet_of(bytes(await self._sink.recv()))
            if packet.opcode == Opcode.ACKNOWLEDGE:
                self.requester.receive(packet)
                self.send()
            elif answer := self.responder.receive(packet):
                self._source.send_nowait(frame_of(answer, PEER, OWN))


async def start(dut) -> tuple[Bench, AxiRam, Peer]:
    """Return the NIC with one queue pair and one region, its memory, and the peer."""
    bench = Bench(dut, RdmaDriver(PRESETS["tiny"]))
    driver, memory, peer = bench.driver, bench.memory("memory", MEMORY), Peer(bench)
    memory.write(0, random.randbytes(MEMORY))
    await bench.start()
    await bench.run(driver.configure(OWN), driver.set_regions([REGION]))
    await bench.run(driver.connect(0, HERE, Endpoint(PEER.mac, PEER.ip, SOURCE_PORT)))
    await bench.poll("status", "connecting", 0)
    return bench, memory, peer


def random_writes(count: int) -> list[Write]:
    """Return writes of any length and alignment into the region, in packets of up to one MTU."""
    writes = []
    for tag in range(count):
        length = random.choice([0, 1, 256, random.randrange(1500)])
        remote = REGION.base + random.randrange(REGION.length - length)
        immediate = random.choice([None, random.getrandbits(32)])
        writes.append(Write(tag, random.randrange(MEMORY - length), remote, RKEY, length, immediate))
    return writes


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_peer_writes_into_the_memory(dut):
    """Check that memory and messages with immediate data equal those of the golden responder."""
    bench, memory, peer = await start(dut)
    driver, writes = bench.driver, random_writes(12)
    golden = Responder(FIRST_QUEUE_PAIR, HERE, bytearray(memory.read(0, MEMORY)), [REGION])
    carry_out(writes, Requester(THERE, peer.memory), golden)
    for write in writes:
        peer.requester.post(write)
    peer.send()
    for expected in golden.arrivals:
        await bench.poll("arrival", "arrived", 1)
        found = driver.arrival_of(await bench.run(driver.take_arrival()))
        assert (found.immediate, found.length) == (expected.immediate, expected.length)
    while not peer.requester.idle:
        await ClockCycles(dut.clk, 1)
    await bench.arrive()  # after an ACK, the write may still be in flight to memory
    assert not peer.requester.failed
    check_equal("memory", bytes(golden.memory), bytes(memory.read(0, MEMORY)))


@cocotb.test(timeout_time=100, timeout_unit="us")
async def the_host_writes_to_the_peer(dut):
    """Check that frames equal those of the golden requester, and that a write without a right fails."""
    bench, memory, peer = await start(dut)
    driver, board = bench.driver, bench.scoreboard("mac_tx")
    writes = random_writes(8)
    writes.append(Write(len(writes), local=0, remote=REGION.base, rkey=RKEY + 1, length=16))
    golden = Responder(FIRST_QUEUE_PAIR, THERE, bytearray(peer.memory), [REGION])
    packets = carry_out(writes, Requester(HERE, bytearray(memory.read(0, MEMORY))), golden)
    board.expect(frame_of(packet, OWN, PEER) for packet in packets)
    for write in writes:
        await bench.poll("status", "full", 0)
        await bench.run(driver.post(0, write))
        await bench.poll("status", "posting", 0)
    for write in writes:
        await bench.poll("completion", "completed", 1)
        done = driver.completion_of(await bench.run(driver.take_completion()))
        assert (done.tag, done.ending) == (write.tag, Ending.ACCESS if write is writes[-1] else Ending.DONE)
    await bench.arrive()
    check_equal("the peer's memory", bytes(golden.memory), bytes(peer.memory))
