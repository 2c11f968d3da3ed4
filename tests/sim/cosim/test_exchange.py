"""Frames between top and network: in time, never late, and what is measured on the way."""

import pytest

from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange, Step
from fanin.sim.network import LinkConfig, Network
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AggPacket, Encap, Kind, encode
from fanin.wire.ethernet import UDP_PORT, Endpoint

PERIOD = 4000
SWITCH = Endpoint(mac=99, ip=9)


class FakeTop:
    """Nodes that send what they are told; records what they get."""

    def __init__(self):
        self.outgoing, self.received, self.alarm = [], [], None

    def frames(self):
        out, self.outgoing = self.outgoing, []
        return out

    def push_frame(self, node, frame, time, *, error, tag):
        self.received.append((time, node, tag, error))

    def taken(self):
        return iter(())

    def set_alarm(self, cycle):
        self.alarm = cycle

    def holds_frames(self):
        return False

    def skip(self, time_ps):
        self.skipped = time_ps


class Bench:
    def __init__(self, *, nodes=2, switch_ns=0, encap=Encap.L2, **link):
        self.top, self.clock, self.encap = FakeTop(), Clock(PERIOD), encap
        switch = ReferenceSwitch(endpoint=SWITCH, ports=nodes)
        members = tuple(Member(n, 1 << n, Endpoint(mac=n + 1, ip=n + 1)) for n in range(nodes))
        switch.add_job(Job(1, 0, 4, members))
        self.network = Network(switch=switch, ports=nodes, link=LinkConfig(**link), switch_ns=switch_ns)
        self.exchange = Exchange(self.top, self.network, self.clock, nodes=nodes)

    def frame(self, node, kind=Kind.AGG):
        packet = AggPacket(kind, 1, 0, 1, 1 << node)
        return encode(packet, encap=self.encap, source=Endpoint(mac=node + 1, ip=node + 1), destination=SWITCH)

    def run(self, sends, *, cycles=2000):
        """Send frames at their edges, wake as the top would; the wakes, and how early receptions were known."""
        sends, wakes, slack = dict(sends), [], []
        for cycle in range(cycles):
            for node in sends.get(cycle, ()):
                self.top.outgoing.append((cycle, node, self.frame(node)))
            if cycle in sends or (self.top.alarm is not None and cycle >= self.top.alarm):
                before = len(self.top.received)
                self.exchange.serve(cycle)
                wakes.append(cycle)
                slack += [time - cycle * PERIOD for time, *_ in self.top.received[before:]]
        return wakes, slack


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize(
    "link",
    [
        {"delay_ns": 0, "gbps": float("inf")},
        {"delay_ns": 0, "gbps": 100},
        {"delay_ns": 250, "gbps": 100},
        {"delay_ns": 3, "gbps": 1},
        {"delay_ns": 100, "gbps": 10, "reorder": 0.5, "duplicate": 0.5, "late_ns": 700},
    ],
)
def test_no_frame_is_handed_in_after_it_has_arrived(encap, link):
    bench = Bench(encap=encap, **link)
    wakes, slack = bench.run({5: [0], 6: [1], 9: [0], 30: [0, 1], 31: [1], 400: [0]})
    assert len(slack) >= 2
    assert min(slack) >= 0
    assert len(wakes) <= 2 * 8


def test_python_wakes_once_per_sending_edge_when_links_have_a_delay():
    wakes, slack = Bench(delay_ns=250, gbps=100).run({5: [0, 1], 50: [0], 60: [1]})
    assert wakes == [5, 50, 60]
    assert len(slack) == 4  # RESULT to both, and a reply to each that asked again


def test_without_latency_the_result_is_there_in_the_instant_of_the_last_agg():
    bench = Bench(delay_ns=0, gbps=float("inf"))
    bench.run({5: [0], 7: [1]})
    assert [(time, node) for time, node, *_ in bench.top.received] == [(7 * PERIOD, 0), (7 * PERIOD, 1)]


def test_latency_is_from_agg_out_to_result_taken_and_counts_an_operation_once():
    bench = Bench(delay_ns=0, gbps=float("inf"))
    bench.run({5: [0], 7: [1], 8: [0]})  # node 0 asks again and gets a second RESULT
    tags = [tag for *_, tag, _ in bench.top.received]
    bench.top.taken = lambda: iter((tag, 20 + n) for n, tag in enumerate(tags))
    bench.exchange.serve(30)
    assert sorted(bench.exchange.allreduce_cycles) == [21 - 7, 20 - 5]
    assert bench.exchange.sent == {"AGG": 3}


def test_the_first_packet_is_followed_as_far_as_it_comes():
    bench = Bench(nodes=3, delay_ns=100)
    bench.run({5: [0], 7: [1]})  # node 2 never sends
    first = bench.exchange.first_packets()
    assert list(first[0]) == [Step.AGG_LEFT, Step.AGG_ARRIVED]
    assert first[0][Step.AGG_LEFT] == 5
    assert first[2] == {}


def test_time_that_is_skipped_makes_later_frames_later_and_no_cycle_another():
    bench, other = Bench(delay_ns=100), Bench(delay_ns=100)
    for each in bench, other:
        each.run({5: [0]})
    before = other.exchange.first_packets()
    assert not bench.exchange.carries
    bench.exchange.skip(10**9)
    assert bench.top.skipped == 10**9
    _, slack = bench.run({2000: [1]}, cycles=2100)
    assert min(slack) >= 10**9
    after = bench.exchange.first_packets()
    assert after[0] == before[0]
    sent, arrived = after[1].values()
    assert 0 < arrived - sent < 40


def test_a_frame_on_its_way_is_carried_and_the_alarm_is_in_the_later_time():
    bench = Bench(delay_ns=1000)
    bench.exchange.skip(7)
    bench.top.outgoing.append((5, 0, bench.frame(0)))
    assert bench.exchange.alarm is None
    bench.exchange.serve(5)
    assert not bench.exchange.carries  # what arrives at once is with the node already
    bench = Bench(delay_ns=1000, reorder=1, late_ns=5000)
    bench.exchange.skip(7)
    bench.top.outgoing.append((5, 0, bench.frame(0)))
    bench.exchange.serve(5)
    assert bench.exchange.carries
    assert 5 < bench.exchange.alarm < 5 + 1250


def _udp(port, protocol=17):
    """An IPv4 datagram whose payload looks like an AGG of slot 0, round 1."""
    packet = AggPacket(Kind.AGG, 1, 0, 1, 1)
    frame = encode(packet, encap=Encap.UDP, source=Endpoint(mac=1, ip=1, port=port), destination=SWITCH)
    frame = bytearray(frame)
    frame[23] = protocol
    frame[36:38] = port.to_bytes(2, "big")
    return bytes(frame)


@pytest.mark.parametrize(
    "frame",
    [
        bytes(12) + b"\x88\xb6" + bytes(50),
        bytes(12) + b"\x08\x06" + bytes(46),
        _udp(4791),
        _udp(UDP_PORT, protocol=6),
        b"\x00" * 12 + b"\x88",
        bytes(12) + b"\x08\x00" + bytes(20),
    ],
    ids=["ring", "ARP", "another UDP port", "TCP", "half an EtherType", "a short datagram"],
)
def test_other_traffic_is_carried_and_no_operation_is_seen_in_it(frame):
    bench = Bench(delay_ns=0, gbps=float("inf"))
    bench.top.outgoing.append((3, 0, frame))
    bench.exchange.serve(3)
    assert bench.exchange.sent == {"other": 1}
    assert bench.exchange.first_packets() == [{}, {}]
    assert bench.network.up[0].statistics.frames == 1
