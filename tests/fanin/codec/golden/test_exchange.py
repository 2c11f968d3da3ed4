"""The exchanges' golden model: packets as the NIC's model makes them, settled values, orders of additions."""

import numpy as np
import pytest

from fanin.codec.facts import Inceptionn, Mode
from fanin.codec.golden import packet
from fanin.codec.golden.exchange import Packets, Wire, count_weights, exchange
from fanin.inceptionn.facts import Leg, Topology
from fanin.job import worker_endpoint
from fanin.ring.groups import Scheme
from fanin.wire.tcp import Segment, decode_tcp, encode_tcp
from tests.fp32_values import SPECIAL

RING, AGGREGATOR = Scheme
CODECS = [Inceptionn(), Inceptionn(6), Inceptionn(15), Inceptionn(1), Inceptionn(10, Mode.PUBLISHED)]
each_codec = pytest.mark.parametrize("codec", CODECS, ids=str)


def gradient(count, seed=0):
    """Values of all sizes: small ones, some above 1, and stretches that do not compress."""
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(count) * 10.0 ** rng.integers(-5, 0, count)).astype(np.float32)
    values[count // 3 : count // 2] *= 1e6
    return values


@each_codec
@pytest.mark.parametrize("count", [0, 1, 7, 8, 90, 365, 366, 2000])
def test_packets_are_those_of_the_nics_model(codec, count):
    """Each packet through the frame that carries it, and the two NIC stages."""
    values, mss = gradient(count), 360
    received, sizes = Packets(codec, mss).carry(values)
    data, arrived, on_wire = values.tobytes(), b"", []
    for at in range(0, len(data), mss):
        segment = Segment(worker_endpoint(0), worker_endpoint(1), at, 0, tos=0x28, payload=data[at : at + mss])
        wire = packet.transmit(encode_tcp(segment), codec)
        on_wire.append(int.from_bytes(wire[16:18], "big") - 40)
        arrived += decode_tcp(packet.receive(wire, codec)).payload
    assert received.tobytes() == arrived
    assert sizes.tolist() == on_wire
    if count == 2000:
        assert any(sizes == mss)  # raw ones among them
        assert any(sizes < mss / 3)


@each_codec
def test_what_is_settled_arrives_as_it_is(codec):
    packets = Packets(codec, 1460)
    special = np.array(SPECIAL, np.uint32).view(np.float32)
    values = np.concatenate([gradient(20_000), special, _around(codec.bound)])
    settled = packets.settle(values)
    assert np.array_equal(packets.carry(settled)[0].view(np.uint32), settled.view(np.uint32))
    assert not np.array_equal(settled, values)


def _around(bound):
    """The values next to the bound and to its sums with the short forms' steps."""
    centres = np.array([2.0**-bound, 2.0**-7, 2.0**-7 + 2.0**-bound, 3 * 2.0**-15], np.float32)
    steps = np.arange(-40, 41, dtype=np.int32)
    return (centres.view(np.int32)[:, None] + steps).view(np.float32).ravel()


def test_one_round_trip_does_not_settle_in_strict_mode():
    """2^-10 and a bit arrives as 2^-10, which is a zero of the next hop; algorithm 2 to the letter settles."""
    values = np.full(8, 2.0**-10 + 2.0**-20, np.float32)
    strict, published = (Packets(Inceptionn(10, mode), 1460) for mode in (Mode.STRICT, Mode.PUBLISHED))
    once, _ = strict.carry(values)
    assert once.tolist() == [2.0**-10] * 8
    assert strict.carry(once)[0].tolist() == [0] * 8
    some = np.concatenate([gradient(20_000), _around(10)])
    once, _ = published.carry(some)
    assert np.array_equal(published.carry(once)[0].view(np.uint32), once.view(np.uint32))


TOPOLOGIES = [
    Topology(2),
    Topology(5),
    Topology(4, AGGREGATOR),
    Topology(8, AGGREGATOR, 2, AGGREGATOR),
    Topology(8, RING, 2, AGGREGATOR),
    Topology(8, RING, 4, RING),
]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_without_a_codec_it_is_the_sum_and_all_bytes_are_counted(topology):
    count = 1000
    gradients = [gradient(count, worker).clip(-1, 1) for worker in range(topology.workers)]
    wire = Wire(Packets(None, 1460))
    total = exchange(topology, gradients, wire)
    assert np.allclose(total, np.sum(gradients, axis=0, dtype=np.float64), atol=1e-5)
    if topology.aggregator is not None:
        count_weights(topology, total, wire)
    ring_bytes = {  # twice n - 1 of n parts, at each of n nodes
        Leg.RING: 2 * (topology.workers - 1),
        Leg.GROUP_RING: 2 * topology.groups * (topology.workers // topology.groups - 1),
        Leg.UPPER_RING: 2 * (topology.groups - 1),
        Leg.SUM_DOWN: topology.workers - topology.groups,
        Leg.UP: topology.workers if topology.groups == 1 else topology.groups,
        Leg.GROUP_UP: topology.workers,
        Leg.DOWN: topology.workers if topology.groups == 1 else topology.groups,
        Leg.GROUP_DOWN: topology.nodes - 1 - topology.groups,
    }
    assert wire.payload == {leg: 4 * count * ring_bytes[leg] for leg in wire.payload}


def test_a_blocks_sum_begins_at_the_node_of_its_number():
    """Whose additions of binary32 come out differently in any other order."""
    values = [1e8, 1.0, -1e8]
    gradients = [np.array([value] * 3, np.float32) for value in values]
    total = exchange(Topology(3), gradients, Wire(Packets(None, 1460)))
    orders = [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    expected = [
        np.float32(np.float32(values[a]) + np.float32(values[b])) + np.float32(values[c]) for a, b, c in orders
    ]
    assert total.tolist() == [float(value) for value in expected]
    assert len(set(total.tolist())) > 1


def test_only_gradients_lose_precision():
    wire = Wire(Packets(Inceptionn(), 1460))
    weights = gradient(400)
    assert np.array_equal(wire.send(Leg.DOWN, weights), weights)
    assert not np.array_equal(wire.send(Leg.UP, weights), weights)


def test_a_group_that_the_nic_does_not_have_is_refused():
    with pytest.raises(ValueError, match="group must be 8, the NIC's, not 16"):
        Packets(Inceptionn(group=16), 1460)
