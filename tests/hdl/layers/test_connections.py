"""Two devices with several connections each, on one MAC: all their words over one network."""

import random

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.layers.connection import Connection, ConnectionJob
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.net.link.job import LinkCounters, LinkStatus
from fanin.hdl.net.mac_hub import MacHub
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.connection import decode_connection
from fanin.wire.ethernet import Encap
from fanin.wire.link import LinkKind
from tests.hdl.layers.test_connection import flat, job, transfers
from tests.hdl.net.link.bench import Delivery, Wires, straight
from tests.support import new_seed, simulate, slow

NUMBERS = (4, 0, 9)
BOTH = range(2)
EACH = range(len(NUMBERS))


class Device(wiring.Component):
    """Connections behind a hub, which start at once; status and counters are of the first."""

    def __init__(self, lanes, *, data_width, encap, **parameters):
        self.data_width = data_width
        self.parts = [Connection(lanes=n, data_width=data_width, encap=encap, **parameters) for n in lanes]
        self.hub = MacHub(connections=len(lanes), data_width=data_width, encap=encap)
        super().__init__(
            {f"i{k}": In(word_stream(n)) for k, n in enumerate(lanes)}
            | {f"o{k}": Out(word_stream(n)) for k, n in enumerate(lanes)}
            | {f"job{k}": In(ConnectionJob) for k in range(len(lanes))}
            | {
                "mac_tx": Out(packet_stream(data_width)),
                "mac_rx": In(packet_stream(data_width, error=True)),
                "start": In(1),
                "reset": In(1),
                "status": Out(LinkStatus),
                "counters": Out(LinkCounters),
                "foreign": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.hub = hub = self.hub
        wiring.connect(m, hub.mac_tx, wiring.flipped(self.mac_tx))
        wiring.connect(m, wiring.flipped(self.mac_rx), hub.mac_rx)
        for k, part in enumerate(self.parts):
            m.submodules[f"connection{k}"] = part
            wiring.connect(m, wiring.flipped(getattr(self, f"i{k}")), part.i)
            wiring.connect(m, part.o, wiring.flipped(getattr(self, f"o{k}")))
            wiring.connect(m, part.mac_tx, hub.tx[k])
            wiring.connect(m, hub.rx[k], part.mac_rx)
            m.d.comb += [
                part.job.eq(getattr(self, f"job{k}")),
                hub.numbers[k].eq(part.job.connection),
                hub.control[k].eq(part.control),
                part.start.eq(self.start),
                part.reset.eq(self.reset),
            ]
        first = self.parts[0]
        m.d.comb += [
            self.status.eq(first.status),
            self.counters.eq(first.counters),
            self.foreign.eq(hub.foreign),
        ]
        return m


class Devices(wiring.Component):
    """Two devices, not connected."""

    def __init__(self, lanes, **parameters):
        self.parts = [Device(of, **parameters) for of in lanes]
        super().__init__({f"device{k}": Out(part.signature) for k, part in enumerate(self.parts)})
        self.link = [getattr(self, f"device{k}") for k in BOTH]

    def elaborate(self, platform):
        m = Module()
        for k, (port, part) in enumerate(zip(self.link, self.parts, strict=True)):
            m.submodules[f"part{k}"] = part
            wiring.connect(m, part, wiring.flipped(port))
        return m


def exchange(dut, wires, words, *, seed, stall, idle, timeout=300):
    """Device 0 sends ``words[0][k]`` over connection k, device 1 the others; whether all of it arrives."""
    lanes = [[part.lanes for part in device.parts] for device in dut.parts]
    log = simulate(
        dut,
        drive={f"device{d}.i{k}": transfers(words[d][k], lanes[d][k]) for d in BOTH for k in EACH},
        collect={f"device{d}.o{k}": len(words[1 - d][k]) // lanes[d][k] for d in BOTH for k in EACH},
        stall=stall,
        settings={
            f"device{d}.job{k}": job(d, connection=NUMBERS[k], timeout=timeout) for d in BOTH for k in EACH
        },
        processes=[wires.process],
        seed=seed,
        idle=idle,
    )
    for d in BOTH:
        assert [flat(log[f"device{d}.o{k}"]) for k in EACH] == words[1 - d]
    return log


@pytest.mark.parametrize(("width", "encap"), [(64, Encap.UDP), *slow((256, Encap.L2), (512, Encap.UDP))])
def test_a_bad_network_mixes_no_connections_and_loses_no_words(width, encap):
    """Bad for 1,500 cycles: frames are lost, come twice, late or spoilt."""
    seed = new_seed()
    rng = random.Random(seed)
    row = 24
    dut = Devices([(8, 3, 4), (4, 6, 24)], row=row, rows=2, data_width=width, encap=encap, frames=4)

    def route(link, data, cycle):
        odds = 0.1 if cycle < 1500 else 0
        for _ in range((rng.random() >= odds) * (1 + (rng.random() < odds))):
            late = rng.randrange(200) if rng.random() < odds else 0
            yield Delivery(1 - link, data, delay=20 + late, error=rng.random() < odds)

    wires = Wires(dut, route, rng, start=[3, 70])
    words = [[[rng.getrandbits(32) for _ in range(row * 10)] for _ in EACH] for _ in BOTH]
    exchange(dut, wires, words, seed=seed, stall=0.1, idle=400)
    assert wires.counts[0]["retransmitted"] + wires.counts[1]["retransmitted"] > 0
    assert wires.counts[0]["foreign"] == wires.counts[1]["foreign"] == 0
    assert wires.failed == {}


def test_a_shared_mac_is_full_and_shared_alike():
    """Three connections that all have words: the MAC has a beat in every cycle but few, and each a third."""
    rng = random.Random(0)
    row, count, width = 352, 4, 128
    dut = Devices([(4, 4, 4), (4, 4, 4)], row=row, rows=1, data_width=width, encap=Encap.L2)
    wires = Wires(dut, straight, rng, start=[3, 3])
    words = [[[rng.getrandbits(32) for _ in range(row * count)] for _ in EACH] for _ in BOTH]
    exchange(dut, wires, words, seed=0, stall=0.0, idle=100, timeout=3000)
    sent = [(s, decode_connection(s.frame)) for s in wires.sent if s.link == 0]
    data = [(s, frame.connection) for s, frame in sent if frame.kind == LinkKind.DATA]
    assert len(data) == len(NUMBERS) * count
    assert all({number for _, number in data[at : at + 3]} == set(NUMBERS) for at in range(0, len(data), 3))
    first, last = data[0][0], data[-1][0]
    beats = sum(8 * len(s.frame) // width for s, _ in sent if first.first <= s.first <= last.first)
    assert beats >= 0.99 * (last.last - first.first + 1)
