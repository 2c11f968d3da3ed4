"""The exchanges in hosts, over the golden NIC stages: every node ends with the golden model's bits."""

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.codec.facts import Inceptionn, Mode
from fanin.codec.golden.exchange import Packets, Wire, count_weights, exchange
from fanin.inceptionn.facts import Leg, Topology, TransportConfig
from fanin.link import LinkConfig
from fanin.ring.groups import Scheme
from fanin.sim.inceptionn.exchange import Participant, Work
from fanin.sim.inceptionn.host import Host, HostCosts
from fanin.wire.tcp import decode_tcp
from tests.sim.inceptionn.events import EventBoard
from tests.support import new_seed

RING, AGGREGATOR = Scheme
STRICT, PUBLISHED = Inceptionn(), Inceptionn(6, Mode.PUBLISHED)
BAD = LinkConfig(gbps=10, drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
TOPOLOGIES = [
    Topology(2),
    Topology(5),
    Topology(3, AGGREGATOR),
    Topology(16, AGGREGATOR, 4, AGGREGATOR),
    Topology(16, RING, 4, AGGREGATOR),
    Topology(16, RING, 4, RING),
]
each_topology = pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: f"{t.name} {t.workers}")
each_codec = pytest.mark.parametrize("codec", [None, STRICT, PUBLISHED], ids=str)


class Cluster:
    """Hosts that exchange one gradient."""

    def __init__(self, topology, codec, count, *, link=None, costs=None, transport=None, seed=0):
        self.topology, self.count = topology, count
        transport = transport or TransportConfig()
        self.packets = Packets(codec, transport.mss)
        self.frames = []
        rng = np.random.default_rng(seed)
        self.gradients = [self._gradient(rng) for _ in range(topology.workers)]
        self.board = EventBoard(
            topology.nodes, link, codec, seed, capture=lambda frame, time: self.frames.append((time, frame))
        )
        self.cut_nodes = set()
        self.hosts = [
            Host(
                self.board,
                node,
                transport=transport,
                costs=costs or HostCosts(),
                compresses=codec is not None,
                cut_nodes=self.cut_nodes,
            )
            for node in range(topology.nodes)
        ]
        self.results = {}

    def _gradient(self, rng):
        return (rng.standard_normal(self.count) * 10.0 ** rng.integers(-4, 0, self.count)).astype(np.float32)

    def _program(self, node):
        part, topology = Participant(self.topology, node, self.packets), self.topology
        own = self.gradients[node] if node < topology.workers else None
        total = yield from part.reduce(own, self.count)
        if topology.aggregator is None:
            return total
        return (yield from part.distribute(None if total is None else total / 2, self.count))

    def run(self):
        for node, host in enumerate(self.hosts):
            host.run(self._program(node), lambda value, node=node: self.results.__setitem__(node, value))
        self.board.run(lambda: len(self.results) == len(self.hosts) and all(host.idle for host in self.hosts))
        return self

    def stop(self, node):
        self.board.cut(node)
        self.cut_nodes.add(node)

    def golden(self):
        wire = Wire(self.packets)
        total = exchange(self.topology, self.gradients, wire)
        if self.topology.aggregator is not None:
            total = total / 2
            count_weights(self.topology, total, wire)
        return total, wire


def check_equal(cluster):
    total, _ = cluster.golden()
    assert sorted(cluster.results) == list(range(cluster.topology.nodes))
    for value in cluster.results.values():
        assert np.array_equal(value.view(np.uint32), total.view(np.uint32))


@each_codec
@each_topology
def test_every_node_ends_with_the_golden_bits(topology, codec):
    cluster = Cluster(topology, codec, 3001).run()
    check_equal(cluster)
    assert sum(host.counters.repeated for host in cluster.hosts) == 0


@each_codec
@each_topology
def test_whatever_links_do(topology, codec):
    check_equal(Cluster(topology, codec, 2000, link=BAD, seed=new_seed()).run())


@pytest.mark.parametrize("count", [1, 3])
@each_topology
def test_vectors_smaller_than_the_group(topology, count):
    check_equal(Cluster(topology, STRICT, count).run())


@each_topology
def test_packets_and_bytes_of_every_leg_are_the_golden_models(topology):
    """Counted on the wire, by the ports of the frames that pass the switch: each passes it once, in and out."""
    cluster = Cluster(topology, STRICT, 3000, transport=TransportConfig(mss=400)).run()
    _, wire = cluster.golden()
    frames, payload = dict.fromkeys(wire.frames, 0), dict.fromkeys(wire.frames, 0)
    for _, frame in cluster.frames:
        size = int.from_bytes(frame[16:18], "big") - 40
        leg = next(leg for leg in Leg if leg.port == int.from_bytes(frame[34:36], "big"))
        if size:
            frames[leg] += 0.5
            payload[leg] += size / 2
    assert frames == wire.frames
    assert payload == wire.payload


def test_without_a_codec_nothing_asks_for_one_and_weights_never_do():
    def marks(topology, codec):
        cluster = Cluster(topology, codec, 3000).run()
        return {frame[15] for _, frame in cluster.frames if len(frame) > 60}

    assert marks(Topology(3), None) == {0}
    assert marks(Topology(3), STRICT) <= {0x28, 0x2C}
    down = Leg.DOWN.port.to_bytes(2, "big")
    cluster = Cluster(Topology(3, AGGREGATOR), STRICT, 3000).run()
    assert {frame[15] for _, frame in cluster.frames if frame[34:36] == down} == {0}
    assert all(decode_tcp(frame) for _, frame in cluster.frames if frame[34:36] == down)  # not even damaged


def test_sums_and_packets_take_the_hosts_time():
    free = Cluster(Topology(4), None, 8000, costs=HostCosts(0.0, 0.0)).run()
    slow = Cluster(Topology(4), None, 8000, costs=HostCosts(0.0, sum=1e-9)).run()
    own = 3 * 2000 * 4 + 2000 * 4  # three sums of a block, and one that is settled
    assert [host.seconds[Work.SUM] for host in slow.hosts] == pytest.approx([own * 1e-9] * 4)
    assert slow.board.now - free.board.now == pytest.approx(own * 1e3, rel=0.01)
    packets = Cluster(Topology(4), None, 8000, costs=HostCosts(20e-6, 0.0)).run()
    of_node = 2 * 6 * 6  # six steps of six segments, out and in
    assert packets.board.now >= of_node * 20 * 10**6


def test_the_ring_takes_what_its_formula_says_where_hosts_cost_nothing():
    """2(p - 1)/p n bytes through each link, and headers; each of 2(p - 1) steps waits for its last packet."""
    workers, count = 4, 40_000
    cluster = Cluster(Topology(workers), None, count, costs=HostCosts(0.0, 0.0)).run()
    block = 4 * count // workers
    packets = -(-block // 1460)
    step = (block + packets * 78) * 0.8 + 100 + 100 + 1460 * 0.8
    assert cluster.board.now / 1e3 == pytest.approx(2 * (workers - 1) * step, rel=0.03)


@pytest.mark.parametrize(("workers", "rounds"), [(3, 2), (4, 3), (8, 4)])
def test_an_aggregator_takes_p_gradients_and_lg_p_rounds_of_weights(workers, rounds):
    count = 20_000
    cluster = Cluster(Topology(workers, AGGREGATOR), None, count, costs=HostCosts(0.0, 0.0)).run()
    vector = (4 * count + -(-4 * count // 1460) * 78) * 0.8  # ns on a link
    assert cluster.board.now / 1e3 == pytest.approx((workers + rounds) * vector, rel=0.05)


@pytest.mark.parametrize("topology", [Topology(3), Topology(3, AGGREGATOR)], ids=lambda t: t.name)
@pytest.mark.parametrize("dies", [0, 1])
def test_a_node_that_dies_is_named(topology, dies):
    cluster = Cluster(topology, None, 30_000)
    cluster.board.at(20 * 10**6, lambda: cluster.stop(dies))
    with pytest.raises(CheckFailed, match=rf"^node {dies} has stopped answering: "):
        cluster.run()
    assert cluster.board.now < 20 * 10**6 + 9 * 50 * 10**9 + 10**9


def test_costs_below_nothing_are_refused():
    with pytest.raises(ValueError, match=r"sum must be at least 0 s, not -1"):
        HostCosts(sum=-1)
