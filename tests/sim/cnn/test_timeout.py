"""How long links wait: longer than any answer takes, and no longer than the network asks for."""

import pytest

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.parts import PlacedNetwork
from fanin.link import LinkConfig
from fanin.sim.cnn.timeout import link_timeout
from fanin.wire.ethernet import Encap

PERIOD = 10_000  # ps


def timeout(devices, name="tiny", encap=Encap.L2, switch_ns=400.0, **link):
    parts = PlacedNetwork(EXAMPLES[name], tuple(devices)).parts
    config = LinkConfig(**{"gbps": 40.0} | link)
    return link_timeout(parts, link=config, switch_ns=switch_ns, period_ps=PERIOD, encap=encap)


def test_two_devices_wait_for_a_round_trip_and_a_round_of_either_hub():
    """On the wire an answer has 88 bytes; frames have 64 of header and padding, and 24 around them."""
    shape = EXAMPLES["tiny"].stages[2].layer.output
    row = 64 * -(-shape.w * shape.c // 16)
    size = row + 64 + 24 + 88
    bytes_moved = 2 * (2 * size + 2 * (1472 + 24 + 88))
    assert timeout("aaabbaaaaa") == pytest.approx(bytes_moved / 50 + 4 * 10 + 2 * 40 + 64 + 32, abs=1)


def test_each_part_of_the_way_counts():
    base = timeout("aaabbaaaaa")
    assert timeout("aaabbaaaaa", delay_ns=1100) == base + 4 * 100
    assert timeout("aaabbaaaaa", switch_ns=1400) == base + 2 * 100
    assert timeout("aaabbaaaaa", gbps=4) > 5 * (base - 216)
    assert timeout("aaabbaaaaa", gbps=1000) == timeout("aaabbaaaaa", gbps=51.2)  # the MAC's own rate
    assert timeout("aaabbaaaaa", encap=Encap.UDP) >= base


def test_frames_of_several_peers_may_queue_in_front_of_one():
    """Each of the middle one's peers may send all that its credit allows at once."""
    assert timeout("aaabcaaaaa") > timeout("aaabbaaaaa") + 1000
