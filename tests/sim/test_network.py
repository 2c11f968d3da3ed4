"""Links: timing to the picosecond, faults at their rates, repeatable from the seed."""

import statistics
import zlib
from dataclasses import replace
from itertools import pairwise

import pytest
from scapy.utils import rdpcap

from fanin.link import LinkConfig
from fanin.sim.network import Link, Network, NetworkConfig
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.base import Switch
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.ethernet import Endpoint

FRAME = bytes(range(60))
QUICK = LinkConfig(delay_ns=0, gbps=float("inf"))


def other_traffic(number, size=60):
    """A frame for MAC 0x…ff that no switch takes for the aggregation packet."""
    return (b"\xff" * 6 + bytes(6) + b"\x08\x06" + number.to_bytes(4, "big")).ljust(size, b"\0")


def test_a_frame_arrives_after_its_bits_and_the_delay():
    link = Link(LinkConfig(delay_ns=250, gbps=100), "x")
    (arrival,) = link.send(FRAME, 1000)
    assert arrival.time == 1000 + (8 + 60 + 4) * 80 + 250_000
    assert arrival.frame == FRAME
    assert not arrival.error


def test_hosts_take_their_time_in_order_and_pad_frames():
    """256 bytes, preamble and FCS at 100 Gb/s: 21.44 ns; jitter has its mean, and no frame passes another."""
    config = LinkConfig(delay_ns=100, host_ns=2000, frame_bytes=256)
    assert Link(config, "0").send(b"x" * 60, 0)[0].time == 21_440 + 100_000 + 2_000_000
    assert Link(config, "0").min_latency == 2_121_440
    link = Link(replace(config, host_jitter_ns=500), "0")
    sent = range(0, 10_000_000_000, 10_000_000)  # 10 µs apart
    late = [link.send(bytes([n % 256]) * 60, time)[0] for n, time in enumerate(sent)]
    assert [arrival.frame[0] for arrival in late] == [n % 256 for n in range(len(sent))]
    longer = [arrival.time - time - 2_121_440 for arrival, time in zip(late, sent, strict=True)]
    assert min(longer) >= 0
    assert sum(longer) / len(longer) == pytest.approx(500_000, rel=0.15)
    burst = Link(replace(config, host_jitter_ns=50_000), "0")
    times = [burst.send(b"x" * 60, 0)[0].time for _ in range(100)]
    assert times == sorted(times)
    assert len(set(times)) < 100  # one that takes long holds those behind it


def test_frames_queue_at_the_rate_of_the_link_gap_included():
    link = Link(LinkConfig(delay_ns=0, gbps=10), "x")
    times = [link.send(FRAME, 0)[0].time for _ in range(4)]
    assert times == [(84 * n + 72) * 800 for n in range(4)]
    assert link.send(FRAME, 10**9)[0].time == 10**9 + 72 * 800  # idle again


def test_an_infinite_link_takes_no_time():
    assert Link(QUICK, "x").send(FRAME, 77)[0].time == 77


@pytest.mark.parametrize(
    ("fault", "counter"), [("drop", "dropped"), ("duplicate", "duplicated"), ("reorder", "reordered")]
)
def test_faults_happen_at_their_rate(fault, counter):
    link = Link(LinkConfig(**{fault: 0.1}), "seed")
    copies = [len(link.send(FRAME, n * 100_000)) for n in range(5000)]
    count = getattr(link.statistics, counter)
    assert 400 < count < 600
    assert link.statistics.frames == 5000
    assert link.statistics.bytes == 300_000
    assert sum(copies) == 5000 + {"drop": -count, "duplicate": count, "reorder": 0}[fault]


def test_later_frames_overtake_a_reordered_one():
    link = Link(LinkConfig(reorder=0.2, late_ns=2000), "seed")
    times = [link.send(FRAME, n * 100_000)[0].time for n in range(500)]
    late = [time - n * 100_000 - times[0] for n, time in enumerate(times)]
    assert any(a > b for a, b in pairwise(times))
    assert max(late) <= 2_000_000
    assert statistics.mean(x for x in late if x) > 500_000


def test_corruption_flips_bits_and_the_fcs_catches_it():
    link = Link(LinkConfig(corrupt=0.5), "seed")
    arrivals = [link.send(FRAME, n * 100_000)[0] for n in range(2000)]
    bad = [a for a in arrivals if a.error]
    assert 900 < len(bad) < 1100
    assert link.statistics.corrupted == link.statistics.fcs_errors == len(bad)
    assert all(a.frame == FRAME for a in arrivals if not a.error)
    assert any(a.frame == FRAME for a in bad)  # the flips hit the FCS alone
    assert sum(a.frame != FRAME for a in bad) > 0.8 * len(bad)
    assert all(len(a.frame) == len(FRAME) for a in bad)


def test_the_fcs_is_really_computed(monkeypatch):
    link = Link(LinkConfig(corrupt=1), "seed")
    monkeypatch.setattr(zlib, "crc32", lambda data: 0)  # a check that sees nothing but flips in itself
    arrivals = [link.send(FRAME, n * 100_000)[0] for n in range(500)]
    assert any(not a.error and a.frame != FRAME for a in arrivals)


def test_the_same_seed_gives_the_same_network_and_another_seed_another():
    config = LinkConfig(drop=0.1, duplicate=0.1, reorder=0.1, corrupt=0.1)

    def run(seed):
        link = Link(config, seed)
        return [link.send(FRAME, n * 1000) for n in range(300)]

    assert run("a") == run("a")
    assert run("a") != run("b")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"drop": 1.5}, "drop must be a probability, not 1.5"),
        ({"corrupt": -0.1}, "corrupt must be a probability"),
        ({"gbps": 0}, "gbps must be at least 0.001, not 0"),
        ({"delay_ns": float("inf")}, "delay_ns must be in"),
        ({"host_jitter_ns": -1}, "host_jitter_ns must be in"),
        ({"frame_bytes": 59}, r"frame_bytes must be in \[60, 9216\], not 59"),
    ],
)
def test_bad_parameters_are_named(fault, message):
    with pytest.raises(ValueError, match=message):
        LinkConfig(**fault)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timeout_ns": 0}, r"timeout_ns must be in \(0, 1e\+13\], not 0"),
        ({"timeout_ns": float("nan")}, "timeout_ns must be in"),
        ({"timeout_ns": float("inf")}, "timeout_ns must be in"),
        ({"retries": -1}, "retries must be in 0…65535, not -1"),
        ({"retries": 65_536}, "retries must be in"),
        ({"retries": 2.5}, "retries must be in 0…65535, not 2.5"),
    ],
)
def test_a_packet_is_sent_again_after_a_while_and_not_for_ever(given, message):
    with pytest.raises(ValueError, match=message):
        NetworkConfig(**given)


def network(link, **kwargs):
    switch = ReferenceSwitch(endpoint=Endpoint(mac=2), ports=3)
    return Network(switch=switch, ports=3, link=link, **kwargs)


def test_a_frame_crosses_two_links_and_the_switch():
    net = network(LinkConfig(delay_ns=100, gbps=100), switch_ns=400)
    net.send(0, other_traffic(1), 0)
    hop = 72 * 80 + 100_000
    assert net.next_time == net.lookahead == hop
    assert net.advance(hop - 1) == []
    received = net.advance(hop)
    assert [(r.port, r.arrival.time) for r in received] == [(1, 2 * hop + 400_000), (2, 2 * hop + 400_000)]
    assert net.next_time is None


def test_links_that_are_cut_take_nothing_more_and_deliver_what_is_under_way():
    net = network(LinkConfig(delay_ns=100, gbps=100), switch_ns=400)
    net.send(1, other_traffic(1), 0)
    net.cut(1)
    net.send(1, other_traffic(2), 10_000)
    net.send(0, other_traffic(3), 10_000)
    received = [(r.port, r.arrival.frame) for r in net.advance(10**9)]
    assert received == [(0, other_traffic(1)), (2, other_traffic(1)), (2, other_traffic(3))]
    cut, whole = net.statistics()[1], net.statistics()[2]
    assert (cut["up"]["dropped"], cut["down"]["dropped"], whole["down"]["dropped"]) == (1, 1, 0)


def test_links_that_are_mended_carry_frames_again():
    net = network(LinkConfig(delay_ns=100, gbps=100), switch_ns=400)
    net.cut(1)
    net.send(1, other_traffic(1), 0)
    net.mend(1)
    net.send(1, other_traffic(2), 10_000)
    net.send(0, other_traffic(3), 10_000)
    received = {(r.port, r.arrival.frame) for r in net.advance(10**9)}
    both = {(1, other_traffic(3)), (2, other_traffic(3))}
    assert received == both | {(0, other_traffic(2)), (2, other_traffic(2))}


def test_two_nodes_that_are_cut_from_one_another_still_reach_others():
    net = network(LinkConfig(delay_ns=100, gbps=100), switch_ns=400)
    net.cut(1, 2)
    for port in range(3):
        net.send(port, other_traffic(port + 1), 0)
    received = {(r.port, r.arrival.frame) for r in net.advance(10**9)}
    assert received == {
        *((port, other_traffic(1)) for port in (1, 2)),
        *((0, other_traffic(port + 1)) for port in (1, 2)),
    }


def test_without_delays_everything_happens_in_the_instant_of_sending():
    net = network(QUICK)
    net.send(1, other_traffic(1), 4000)
    assert net.lookahead == 0
    assert [r.port for r in net.advance(4000)] == [0, 2]


def test_a_runt_is_padded_so_nothing_reaches_the_switch_before_the_lookahead():
    net = network(LinkConfig(delay_ns=100, gbps=100))
    net.send(0, b"", 0)
    assert net.lookahead == net.next_time


def test_corrupt_frames_reach_nodes_marked_and_switches_not_at_all():
    class Spy(ReferenceSwitch):
        seen = 0

        def inject(self, port, frame, time):
            self.seen += 1
            assert frame == other_traffic(int.from_bytes(frame[14:18], "big"))
            return super().inject(port, frame, time)

    switch = Spy(endpoint=Endpoint(mac=2), ports=2)
    assert isinstance(switch, Switch)
    net = Network(switch=switch, ports=2, link=LinkConfig(corrupt=0.3), seed=1)
    for number in range(400):
        net.send(0, other_traffic(number), number * 100_000)
    received = net.advance(10**9)
    errors = sum(r.arrival.error for r in received)
    assert len(received) == switch.seen == 400 - net.up[0].statistics.fcs_errors
    assert errors == net.down[1].statistics.fcs_errors > 50


def test_each_direction_of_each_link_has_faults_of_its_own():
    net = network(LinkConfig(drop=0.5), seed=3)
    for number in range(200):
        net.send(0, other_traffic(number), number * 100_000)  # flooded: ports 1 and 2 see the same
    received = net.advance(10**9)
    one, two = ([r.arrival.frame for r in received if r.port == port] for port in (1, 2))
    assert 20 < len(one) < 80
    assert 20 < len(two) < 80
    assert one != two
    counts = net.statistics()
    assert counts[0]["up"]["frames"] == 200
    assert counts[1]["down"]["frames"] == 200 - counts[0]["up"]["dropped"]


def test_the_capture_holds_every_intact_frame_at_the_switch_in_time(tmp_path):
    path = tmp_path / "frames.pcap"
    with PcapWriter(path) as pcap:
        net = network(LinkConfig(corrupt=0.2, delay_ns=100), switch_ns=50, seed=5, capture=pcap.write)
        for number in range(100):
            net.send(0, other_traffic(number), 2_000_000_000_000 + number * 1_000_000)
        net.advance(10**15)
        net.close()
    packets = rdpcap(str(path))
    arrived = 100 - net.up[0].statistics.fcs_errors
    assert len(packets) == 3 * arrived
    assert {bytes(p) for p in packets} <= {other_traffic(n) for n in range(100)}
    times = [p.time for p in packets]
    assert times == sorted(times)
    assert int(times[0]) == 2
    gap = round((times[1] - times[0]) * 10**9)
    assert gap == 50  # nanoseconds: from the switch's ingress to its egress
