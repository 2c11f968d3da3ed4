"""Parts of a network: every stage once, an end at both sides of each cut edge, sizes of the whole."""

import random
from itertools import pairwise

import pytest

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.facts import Consumer
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.ingress import Ingress
from fanin.cnn.parts import PlacedNetwork
from tests.support import new_seed


def placed(network, rng, devices=("a", "b", "c")):
    """A random placement whose host is the first device."""
    fixed = {network.images, network.labels, network.loss, network.output}
    fixed |= {consumer.stage for consumer in network.consumers[network.images]}
    return PlacedNetwork(
        network,
        tuple(devices[0] if i in fixed else rng.choice(devices) for i in range(len(network.stages))),
    )


@pytest.fixture(params=sorted(EXAMPLES))
def placement(request):
    return placed(EXAMPLES[request.param], random.Random(new_seed()))


def consumer_of(part, local):
    """The consumer in the whole network that an edge of the part leads to."""
    if local.stage in part.ends:
        return part.ends[local.stage].consumer
    return Consumer(part.network_index[local.stage], local.port)


def test_every_stage_is_on_its_device_and_nowhere_else(placement):
    found = {}
    for part in placement.parts:
        for here, index in part.network_index.items():
            assert placement.devices[index] == part.device
            stage, whole = part.network.stages[here], placement.network.stages[index]
            assert (stage.name, stage.layer, stage.parallelism) == (whole.name, whole.layer, whole.parallelism)
            found[index] = part.device
    assert sorted(found) == list(range(len(placement.network.stages)))


def test_a_cut_edge_has_an_end_on_both_sides(placement):
    for one in placement.connections:
        ends = [
            (part, here)
            for part in placement.parts
            for here, end in part.ends.items()
            if end.number == one.number
        ]
        kinds = {type(part.network.stages[here].layer): (part, here) for part, here in ends}
        assert len(ends) == len(kinds) == 2
        part, here = kinds[Egress]
        stage = part.network.stages[here]
        assert part.network_index[stage.sources[0]] == one.source
        assert stage.parallelism.pi == placement.network.stages[one.source].parallelism.po
        assert stage.layer.gradient == one.trains
        part, here = kinds[Ingress]
        stage, (consumer,) = part.network.stages[here], part.network.consumers[here]
        assert Consumer(part.network_index[consumer.stage], consumer.port) == one.consumer
        assert stage.parallelism.po == placement.network.stages[one.consumer.stage].parallelism.pi
        assert (stage.layer.output, stage.layer.trains) == (
            placement.network.stages[one.source].layer.output,
            one.trains,
        )


def test_consumers_have_the_order_of_the_whole_network(placement):
    """In which the gradients of a fork are added."""
    for part in placement.parts:
        for here, index in part.network_index.items():
            found = [consumer_of(part, local) for local in part.network.consumers[here]]
            assert found == list(placement.network.consumers[index])
        for stage, sources in enumerate(one.sources for one in part.network.stages):
            assert all(source < stage for source in sources)


def test_fifos_stand_where_words_wait_and_hold_as_much(placement):
    flow = placement.flow
    for forward, sizes in (True, flow.skews), (False, flow.gradient_skews):
        found = {}
        for part in placement.parts:
            for (stage, port), transfers in (part.skews if forward else part.gradient_skews).items():
                whole = consumer_of(part, Consumer(stage, port))
                waits = whole.stage if forward else placement.network.stages[whole.stage].sources[whole.port]
                assert placement.devices[waits] == part.device
                found[whole.stage, whole.port] = transfers
        assert found == sizes
    rings = {part.network_index[here]: size for part in placement.parts for here, size in part.rings.items()}
    assert rings == flow.rings


def test_the_hosts_device_comes_first_and_others_as_their_stages():
    network = EXAMPLES["tiny"]
    devices = ["z"] * len(network.stages)
    devices[4], devices[6] = "m", "a"
    placement = PlacedNetwork(network, tuple(devices))
    assert placement.names == ("z", "m", "a")
    assert [part.network.at_host for part in placement.parts] == [True, False, False]
    assert [one.number for one in placement.connections] == list(range(4))
    order = [(one.consumer.stage, one.consumer.port) for one in placement.connections]
    assert all(one < other for one, other in pairwise(order))


def test_all_on_one_device_is_the_network_itself(placement):
    network = placement.network
    together = PlacedNetwork(network, ("only",) * len(network.stages))
    (part,) = together.parts
    assert part.network == network
    assert part.ends == {}
    assert (part.skews, part.gradient_skews, part.rings) == (
        together.flow.skews,
        together.flow.gradient_skews,
        together.flow.rings,
    )


def test_what_the_host_feeds_is_at_the_host():
    network = EXAMPLES["tiny"]
    devices = ["a"] * len(network.stages)
    devices[2] = "b"
    with pytest.raises(ValueError, match=r"conv must be on a, the host's device, not on b"):
        PlacedNetwork(network, tuple(devices))
    with pytest.raises(ValueError, match="there must be 10 devices, one for each stage"):
        PlacedNetwork(network, ("a",))


def test_transfers_are_as_wide_as_where_a_connection_arrives():
    """Those from norm2, of two words, as four at the sum; relu1's gradient from there, of four, as four."""
    network = EXAMPLES["residual"]
    together, apart = (
        PlacedNetwork(network, ("a",) * 14).flow,
        PlacedNetwork(network, tuple("aaaabbbaaaaaaa")).flow,
    )
    assert apart.lanes((7, 0), forward=True) == 2 * together.lanes((7, 0), forward=True) == 4
    assert apart.lanes((5, 0), forward=False) == together.lanes((5, 0), forward=False) == 1
