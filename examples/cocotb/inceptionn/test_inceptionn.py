"""Test of INCEPTIONN's NIC between host and MAC: compresses marked IP packets as the golden model does."""

from __future__ import annotations

import random

import cocotb
import numpy as np
from bench import Bench
from frames import raw_frame
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fanin.codec.facts import TOS_COMPRESSIBLE, TOS_RAW, Inceptionn
from fanin.codec.golden import packet
from fanin.inceptionn.driver import InceptionnDriver

CODEC = Inceptionn(bound=10)
FRAMES = 60


def host_frame() -> bytes:
    """Return a frame of gradients or of incompressible bytes, over UDP or TCP; one in three is not marked."""
    size = random.randrange(1, 1400)
    gradients = np.random.default_rng(random.getrandbits(32)).normal(0, 2e-3, size).astype("<f4").tobytes()
    payload = random.choice([gradients, random.randbytes(size)])[:size]
    transport = random.choice([UDP(sport=1000, dport=2000), TCP(sport=1000, dport=2000)])
    ether = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=random.choice([TOS_COMPRESSIBLE, TOS_COMPRESSIBLE, 0]))
    return raw_frame(ether / ip / transport / Raw(payload))


def sums_are_right(frame: bytes) -> bool:
    """Return whether the frame's checksums equal those that scapy computes."""
    read, again = Ether(frame), Ether(frame)
    transport = UDP if UDP in again else TCP
    del again[IP].chksum, again[transport].chksum
    again = Ether(bytes(again))
    return (read[IP].chksum, read[transport].chksum) == (again[IP].chksum, again[transport].chksum)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def frames_shrink_on_the_wire_and_come_back(dut):
    """Run both directions at once. Compare frames with the golden model, and checksums with scapy's."""
    bench = Bench(dut, InceptionnDriver())
    host_tx, mac_rx = bench.source("host_tx"), bench.source("mac_rx")
    to_wire, to_host = bench.scoreboard("mac_tx"), bench.scoreboard("host_rx")
    for prefix in ("mac_tx", "host_rx"):
        bench.sink(prefix)
    await bench.start()
    await bench.run(bench.driver.configure(CODEC))

    sent = [host_frame() for _ in range(FRAMES)]
    wire = [packet.transmit(frame, CODEC) for frame in sent]
    to_wire.expect(wire)
    to_host.expect(packet.receive(frame, CODEC) for frame in wire)
    for frame, small in zip(sent, wire, strict=True):
        host_tx.send_nowait(frame)
        mac_rx.send_nowait(small)
    await bench.arrive()

    assert all(map(sums_are_right, wire))
    shrunk = [Ether(frame)[IP].tos == TOS_COMPRESSIBLE for frame in wire]
    counters = bench.driver.counters_of(await bench.run(bench.driver.counters()))
    assert counters["tx_coded"] == counters["rx_coded"] == sum(shrunk) > 0
    assert counters["tx_raw"] == sum(Ether(frame)[IP].tos == TOS_RAW for frame in wire)
    before, behind = sum(map(len, sent)), sum(map(len, wire))
    cocotb.log.info("%d frames, %d of them compressed: %d bytes become %d", FRAMES, sum(shrunk), before, behind)
