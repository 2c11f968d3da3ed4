"""Frames between top and network: in time, never late, and what is measured on the way."""

from operator import attrgetter

import pytest

from fanin.link import LinkConfig
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange, SentFrame, TakenFrame
from fanin.sim.network import Network
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.operations import Operations, Step
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AggPacket, Encap, Kind, encode
from fanin.wire.ethernet import UDP_PORT, Endpoint

PERIOD = 4000
SWITCH = Endpoint(mac=99, ip=9)


class Bench:
    """Nodes that send what they are told; records what they get."""

    def __init__(self, *, nodes=2, switch_ns=0, encap=Encap.L2, log=None, **link):
        self.clock, self.encap, self.received = Clock(PERIOD), encap, []
        switch = ReferenceSwitch(endpoint=SWITCH, ports=nodes)
        members = tuple(Member(n, 1 << n, Endpoint(mac=n + 1, ip=n + 1)) for n in range(nodes))
        switch.add_job(Job(1, 0, 4, members))
        self.network = Network(
            switch=switch, ports=nodes, link=LinkConfig(**link), switch_ns=switch_ns, log=log
        )
        self.exchange = Exchange(self.network, self.clock, Operations(nodes))

    def frame(self, node, kind=Kind.AGG):
        packet = AggPacket(kind, 1, 0, 1, 1 << node)
        return encode(packet, encap=self.encap, source=Endpoint(mac=node + 1, ip=node + 1), destination=SWITCH)

    def serve(self, cycle, *sent, taken=()):
        self.received += self.exchange.serve(cycle, [SentFrame(*one) for one in sent], taken)

    def skip(self, time_ps):
        self.exchange.before_skip()
        self.clock.skipped_ps += time_ps

    def run(self, sends, *, cycles=2000):
        """Send frames at their edges, wake as the top would; the wakes, and how early receptions were known."""
        sends, wakes, slack = dict(sends), [], []
        for cycle in range(cycles):
            alarm = self.exchange.alarm
            if cycle in sends or (alarm is not None and cycle >= alarm):
                before = len(self.received)
                self.serve(cycle, *((cycle, node, self.frame(node)) for node in sends.get(cycle, ())))
                wakes.append(cycle)
                slack += [one.time - self.clock.time(cycle) for one in self.received[before:]]
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
    assert [(one.time, one.node) for one in bench.received] == [(7 * PERIOD, 0), (7 * PERIOD, 1)]


def test_latency_is_from_agg_out_to_result_taken_and_counts_an_operation_once():
    bench = Bench(delay_ns=0, gbps=float("inf"))
    bench.run({5: [0], 7: [1], 8: [0]})  # node 0 asks again and gets a second RESULT
    bench.serve(30, taken=[TakenFrame(20 + n, one.tag) for n, one in enumerate(bench.received)])
    assert sorted(bench.exchange.watch.allreduce_cycles) == [21 - 7, 20 - 5]
    assert bench.exchange.watch.sent == {"AGG": 3}


def test_the_first_packet_is_followed_as_far_as_it_comes():
    bench = Bench(nodes=3, delay_ns=100)
    bench.run({5: [0], 7: [1]})  # node 2 never sends
    first = bench.exchange.watched(5000).first_packet
    assert list(first[0]) == [Step.AGG_LEFT, Step.AGG_ARRIVED]
    assert first[0][Step.AGG_LEFT] == 5
    assert first[2] == {}


def test_time_that_is_skipped_makes_later_frames_later_and_no_cycle_another():
    bench, other = Bench(delay_ns=100), Bench(delay_ns=100)
    for each in bench, other:
        each.run({5: [0]})
    before = other.exchange.watched(5000).first_packet
    assert not bench.exchange.carries
    bench.skip(10**9)
    _, slack = bench.run({2000: [1]}, cycles=2100)
    assert min(slack) >= 0
    after = bench.exchange.watched(5000).first_packet
    assert after[0] == before[0]
    sent, arrived = after[1].values()
    assert 0 < arrived - sent < 40


def test_a_frame_on_its_way_is_carried_and_the_alarm_is_in_the_later_time():
    bench = Bench(delay_ns=1000)
    bench.skip(7)
    assert bench.exchange.alarm is None
    bench.serve(5, (5, 0, bench.frame(0)))
    assert not bench.exchange.carries  # what arrives at once is with the node already
    bench = Bench(delay_ns=1000, reorder=1, late_ns=5000)
    bench.skip(7)
    bench.serve(5, (5, 0, bench.frame(0)))
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
    bench.serve(3, (3, 0, frame))
    assert bench.exchange.watch.sent == {"other": 1}
    assert bench.exchange.watched(5000).first_packet == [{}, {}]
    assert bench.network.up[0].statistics.frames == 1


@pytest.mark.parametrize(
    "link", [{"delay_ns": 100}, {"delay_ns": 100, "reorder": 0.5, "duplicate": 0.5, "drop": 0.2}]
)
@pytest.mark.parametrize("stride", [1, 7, 40])
def test_it_does_not_matter_how_often_frames_are_carried(link, stride):
    """What is carried once a window is what is carried frame by frame, in the same order, with the same log."""
    sends = {cycle: [cycle % 2] for cycle in range(5, 400, 3)} | {99: [0, 1], 102: [0, 1]}

    class Log:
        def __init__(self):
            self.entries = []

        def write(self, *entry):
            self.entries.append(entry)

    def carried(edges):
        log, received = Log(), []
        bench = Bench(log=log, **link)
        left = sorted((cycle, node, bench.frame(node)) for cycle, nodes in sends.items() for node in nodes)
        for edge in edges:
            sent = [one for one in left if one[0] <= edge]
            left = left[len(sent) :]
            arrived = [one for one in bench.received if one.time + PERIOD <= edge * PERIOD]
            bench.received = [one for one in bench.received if one not in arrived]
            bench.serve(
                edge,
                *reversed(sent),
                taken=[TakenFrame(-(-one.time // PERIOD) + 1, one.tag) for one in arrived],
            )
            received += arrived
        assert len(received) > 100
        received.sort(key=attrgetter("tag"))
        return log.entries, received, bench.exchange.watch.allreduce_cycles, bench.network.statistics()

    assert carried([*range(0, 2000, stride), 2000]) == carried(range(2001))
