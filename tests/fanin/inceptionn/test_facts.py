"""Who exchanges gradients with whom, and what cannot be."""

import pytest

from fanin.inceptionn.facts import Topology, TransportConfig, blocks, relays
from fanin.ring.groups import Scheme

RING, AGGREGATOR = Scheme


@pytest.mark.parametrize(
    ("topology", "name", "nodes", "leaders", "aggregator"),
    [
        (Topology(4), "INC", 4, (0,), None),
        (Topology(4, AGGREGATOR), "WA", 5, (0,), 4),
        (Topology(16, AGGREGATOR, 4, AGGREGATOR), "figure 1(a)", 21, (16, 17, 18, 19), 20),
        (Topology(16, RING, 4, AGGREGATOR), "figure 1(b)", 17, (0, 4, 8, 12), 16),
        (Topology(16, RING, 4, RING), "figure 1(c)", 16, (0, 4, 8, 12), None),
    ],
)
def test_nodes_and_leaders(topology, name, nodes, leaders, aggregator):
    assert (topology.name, topology.nodes) == (name, nodes)
    assert (topology.leaders, topology.aggregator) == (leaders, aggregator)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1,), "workers must be 2 to 64, not 1"),
        ((65,), "workers must be 2 to 64, not 65"),
        ((6, RING, 4, RING), "groups must divide the 6 workers, not be 4"),
        ((4, RING, 0), "groups must divide the 4 workers, not be 0"),
        ((4, RING, 4, RING), "a group must have at least 2 workers, not 1"),
        ((4, RING, 2), "above must be given for several groups and must be None for one, not None"),
        ((4, RING, 1, RING), "above must be given for several groups and must be None for one, not "),
        ((4, AGGREGATOR, 2, RING), "above must be aggregator where groups have aggregators, not ring"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Topology(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mss": 1458}, "mss must be whole values, 4 to 9160 bytes, not 1458"),
        ({"mss": 9164}, "mss must be whole values, 4 to 9160 bytes, not 9164"),
        ({"window": 45}, "window must be 1 to 44 segments of 1460 bytes, not 45"),
        ({"ack_every": 0}, "ack_every must be at least 1, not 0"),
        ({"retries": 0}, "retries must be at least 1, not 0"),
        ({"timeout": 0.0}, "timeout must be 1e-6 to 1000 s, not 0.0"),
    ],
)
def test_transports_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        TransportConfig(**options)


def test_blocks_are_even_and_cover_the_vector():
    assert [(block.start, block.stop) for block in blocks(10, 4)] == [(0, 2), (2, 5), (5, 7), (7, 10)]
    assert [block.stop - block.start for block in blocks(2, 3)] == [0, 1, 1]


@pytest.mark.parametrize("count", range(1, 18))
def test_a_message_reaches_all_in_as_many_rounds_as_a_binomial_tree_needs(count):
    members = [100 + n for n in range(count)]
    has, rounds = {members[0]: 0}, 0
    for member in members:  # whoever sends to a member comes before it
        before, after = relays(members, member)
        assert before is None or member in relays(members, before)[1]
        for sends, to in enumerate(after, start=1):
            assert to not in has
            has[to] = has[member] + sends
            rounds = max(rounds, has[to])
    assert set(has) == set(members)
    assert rounds == (count - 1).bit_length()
